"""What the mission names, on the path that a person walks with no option given: one test for each row of the table."""
