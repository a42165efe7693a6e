"use strict";

// Every answer is shown with the curl command of its request, which people copy into mails and
// tickets: the token is left out of it.
const tokenStaysOut = () => ({
  wrapComponents: {
    curl: (Curl, { React }) => (properties) => {
      const { request } = properties;
      const shown = request.hasIn(["headers", "Authorization"])
        ? request.setIn(["headers", "Authorization"], "Bearer vgp_…")
        : request;
      return React.createElement(Curl, { ...properties, request: shown });
    },
  },
});

// In a separate file, because the page's policy allows no inline scripts.
SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#console",
  deepLinking: true,
  docExpansion: "list",
  // The schemas are one closed line at the end of the page; within one, two levels are open.
  defaultModelsExpandDepth: 0,
  defaultModelExpandDepth: 2,
  displayRequestDuration: true,
  tryItOutEnabled: true,
  // The token is discarded when the page is closed.
  persistAuthorization: false,
  // By default the document would be sent to a validator on the internet.
  validatorUrl: null,
  plugins: [tokenStaysOut],
});
