// Shows the document of this server. A page of the console that is signed in may try the operations: its session counts here too.
window.SwaggerUIBundle({
  url: '/openapi.json',
  dom_id: '#reference',
  deepLinking: true,
  docExpansion: 'list',
  defaultModelsExpandDepth: 0,
  filter: true,
  validatorUrl: null,
  withCredentials: false,
})
