/** Uploads of files. `fetch` does not tell how much of a body was sent, so this one request uses the older interface. */
import { address, ApiError, identityHeaders, signedOut } from './client';

export function upload<T>(path: string, form: FormData, progress: (part: number) => void): Promise<T> {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open('POST', address(path));
    request.setRequestHeader('accept', 'application/json');
    for (const [name, value] of Object.entries(identityHeaders())) request.setRequestHeader(name, value);
    request.upload.onprogress = (event) => event.lengthComputable && progress(event.loaded / event.total);
    request.onerror = () => reject(new ApiError(0, 'server_unreachable', 'network error'));
    request.onload = () => {
      let body: unknown = null;
      try {
        body = JSON.parse(request.responseText);
      } catch {
        // An answer that is no JSON is reported by its status.
      }
      if (request.status >= 200 && request.status < 300) return resolve(body as T);
      if (request.status === 401) signedOut.value = true;
      const error = (body as { error?: { code?: string; message?: string; details?: unknown } } | null)?.error;
      reject(new ApiError(request.status, error?.code ?? `http_${request.status}`, error?.message ?? request.statusText, error?.details));
    };
    request.send(form);
  });
}
