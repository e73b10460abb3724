"""What Golden15 knows about machines. Pure Python: no Django, no database, no server."""
