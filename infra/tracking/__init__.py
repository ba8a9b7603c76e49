"""MLflow as the record of what happened. It must open when a new run starts; after that it can never end one."""
