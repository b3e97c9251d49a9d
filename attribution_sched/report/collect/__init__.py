"""What a report is made of, read off a system and its journal."""
