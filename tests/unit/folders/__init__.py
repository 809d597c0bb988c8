"""Folders by descriptor."""
