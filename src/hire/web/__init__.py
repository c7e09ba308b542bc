"""The page of the service: one HTML, one CSS and one JavaScript file, served as they are."""
