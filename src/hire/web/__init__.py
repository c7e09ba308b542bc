"""The page of the service: HTML, CSS and JavaScript modules, served as they are; `page.js` is where it starts."""
