"""The grid of a configuration: its runs, policies and harvests, and what each training reads."""
