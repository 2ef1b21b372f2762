import { defineConfig } from 'vite';

// `npm run dev` sends what is not the page itself to a running server. WERKRUF_SERVER names another one, and WERKRUF_KEY a key to send.
const server = (globalThis as { process?: { env: Record<string, string | undefined> } }).process?.env ?? {};
const target = server.WERKRUF_SERVER ?? 'http://127.0.0.1:8080';
const headers = server.WERKRUF_KEY ? { authorization: `Bearer ${server.WERKRUF_KEY}` } : undefined;

export default defineConfig({
  base: '/console/',
  build: {
    target: 'es2022',
    sourcemap: false,
    // The content security policy of the server refuses scripts and styles inside the page, and data URLs of fonts.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: true,
  },
  server: { proxy: { '/api': { target, headers }, '/docs': { target } } },
});
