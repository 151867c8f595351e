"""What is kept on disk, and whether the folder it is kept in is one's own."""
