"""Skills: what an analyzer writes about finished episodes, static texts in their place, and their way into a prompt."""
