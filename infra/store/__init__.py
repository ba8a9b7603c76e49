"""The artifact store on a local file system: immutable folders by content key, work folders, leases, digests."""
