"""The table of jobs of a grid: what each is made from, and what it leaves."""
