"""The rules, one per file: `RULE` of each judges all evidence. There is no list to edit."""
