"""Small dense transforms held in registers, as Winograd's are."""
