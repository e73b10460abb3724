"""How often the verdict is right: `make accuracy` judges every case of tests/cases and counts."""
