"""The sections of a report in words, tables and pictures; each file makes one."""
