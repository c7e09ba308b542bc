"""Systems side by side: the runs that a comparison needs, their metrics, whether they differ, tables and charts."""
