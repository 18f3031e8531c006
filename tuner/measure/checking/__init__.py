"""What a checker is asked, and the near end of its process."""
