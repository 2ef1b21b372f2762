/** Server-sent events over fetch, so that requests carry headers and refusals are read like those of every other request. */
import { type Options, send } from './client';

export interface StreamEvent {
  id: string | null;
  name: string;
  data: string;
}

/** Splits a body into events. Feed it text; it returns the events that are complete. */
export class EventParser {
  private rest = '';
  private id: string | null = null;
  private name = '';
  private data: string[] = [];

  feed(text: string): StreamEvent[] {
    const events: StreamEvent[] = [];
    const lines = (this.rest + text).split(/\r\n|\n|\r(?!$)/);
    this.rest = lines.pop() ?? '';
    for (const line of lines) {
      if (line === '') {
        if (this.name || this.data.length) events.push({ id: this.id, name: this.name || 'message', data: this.data.join('\n') });
        this.id = null;
        this.name = '';
        this.data = [];
        continue;
      }
      const colon = line.indexOf(':');
      const field = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
      if (field === 'id') this.id = value;
      else if (field === 'event') this.name = value;
      else if (field === 'data') this.data.push(value);
    }
    return events;
  }
}

/** Reads a stream until it ends or is aborted, and hands on the events of each piece together. */
export async function readStream(path: string, options: Options, receive: (events: StreamEvent[]) => void, opened?: () => void): Promise<void> {
  const response = await send('get', path, { ...options, headers: { accept: 'text/event-stream', ...options.headers } });
  opened?.();
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  if (!reader) return;
  const parser = new EventParser();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const events = parser.feed(value);
    if (events.length) receive(events);
  }
}

/** Waits, and returns early if the work was aborted. */
export function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener('abort', () => (clearTimeout(timer), resolve()), { once: true });
  });
}
