"""What has to run: from the config to nodes, from nodes to keys, from keys and the store to a plan with reasons."""
