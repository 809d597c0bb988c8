"""What strangers, forgers and slow clients send to the API."""
