"""Plans: which are valid, what surrounds them, which is best. Knows the cluster; knows no policy."""
