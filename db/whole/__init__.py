"""Operations on the whole database: export, copy, check, statistics, lists and deletion."""
