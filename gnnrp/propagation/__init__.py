"""What flows along a similarity: labels, residuals, and their exact trajectories."""
