/** Knowledge: collections with their rights, upload of files, and search as the tool sees it. */
import { useSignal } from '@preact/signals';
import { useRef } from 'preact/hooks';
import { api, ApiError, type Schemas } from '../api/client';
import { upload } from '../api/upload';
import { bytes, number } from '../format';
import { t, word } from '../i18n';
import { ActionButton, Empty, ErrorBox, Facts, Field, Loaded, Page, Section, Status } from '../parts/basics';
import { Icon } from '../parts/icons';
import { asApiError, useResource } from '../resource';
import { isAdmin } from '../session';

const FILE_TYPES = '.txt,.md,.html,.htm,.pdf,.docx,.xlsx,.csv';

interface Entry {
  name: string;
  size: number;
  part: number;
  status: string;
  reason: string | null;
}

function Upload({ collection, done }: { collection: string; done: () => void }) {
  const entries = useSignal<Entry[]>([]);
  const over = useSignal(false);
  const input = useRef<HTMLInputElement>(null);
  const change = (at: number, values: Partial<Entry>) => (entries.value = entries.value.map((entry, index) => (index === at ? { ...entry, ...values } : entry)));
  const send = async (files: File[]) => {
    const first = entries.value.length;
    entries.value = [...entries.value, ...files.map((file) => ({ name: file.name, size: file.size, part: 0, status: 'queued', reason: null }))];
    // One file per request, one after the other: each has its own progress and its own outcome.
    for (const [index, file] of files.entries()) {
      const at = first + index;
      const form = new FormData();
      form.append('collection', collection);
      form.append('file', file, file.name);
      change(at, { status: 'running' });
      try {
        const answer = await upload<Schemas['AddedFiles']>('/api/knowledge/files', form, (part) => change(at, { part }));
        const outcome = answer.files[0];
        change(at, { part: 1, status: outcome?.status ?? 'failed', reason: outcome?.reason ?? null });
      } catch (error) {
        change(at, { status: 'failed', reason: asApiError(error).message });
      }
    }
    done();
  };
  return (
    <Section title={t('upload')}>
      <div
        class={`drop ${over.value ? 'over' : ''}`}
        onDragOver={(event) => {
          event.preventDefault();
          over.value = true;
        }}
        onDragLeave={() => (over.value = false)}
        onDrop={(event) => {
          event.preventDefault();
          over.value = false;
          void send([...(event.dataTransfer?.files ?? [])]);
        }}
      >
        <Icon name="upload" />
        <label class="field">
          <span class="field-label">{t('upload_label', { collection })}</span>
          <input
            ref={input}
            type="file"
            multiple
            accept={FILE_TYPES}
            data-testid="knowledge-file"
            onChange={(event) => {
              const files = [...(event.currentTarget.files ?? [])];
              event.currentTarget.value = '';
              void send(files);
            }}
          />
        </label>
        <p class="muted">{t('upload_types')}</p>
      </div>
      {entries.value.length > 0 && (
        <ul class="uploads" aria-live="polite">
          {entries.value.map((entry) => (
            <li data-testid="knowledge-upload" data-status={entry.status}>
              <span class="item-title">{entry.name}</span>
              <span class="muted">{bytes(entry.size)}</span>
              {entry.status === 'running' ? <progress max={1} value={entry.part} aria-label={entry.name} /> : <Status status={entry.status} />}
              {entry.reason && <span class="muted">{entry.reason}</span>}
            </li>
          ))}
        </ul>
      )}
    </Section>
  );
}

const rank = (value: number | null | undefined) => (value === null || value === undefined ? '–' : `${value}.`);

function Search({ collection }: { collection: string }) {
  const text = useSignal('');
  const mode = useSignal('hybrid');
  const results = useSignal<Schemas['Results'] | null>(null);
  const error = useSignal<ReturnType<typeof asApiError> | null>(null);
  const run = async () => {
    if (!text.value.trim()) return;
    error.value = null;
    try {
      results.value = await api.post('/api/knowledge/search', { body: { query: text.value, top_k: 20, collection, mode: mode.value } });
    } catch (caught) {
      error.value = asApiError(caught);
    }
  };
  const found = results.value;
  return (
    <Section title={t('search')}>
      <form
        class="filters"
        role="search"
        onSubmit={(event) => {
          event.preventDefault();
          void run();
        }}
      >
        <Field label={t('search_label')}>
          <input type="search" data-testid="knowledge-query" value={text.value} onInput={(event) => (text.value = event.currentTarget.value)} />
        </Field>
        <Field label={t('mode')}>
          <select value={mode.value} onChange={(event) => (mode.value = event.currentTarget.value)}>
            <option value="hybrid">{t('mode_hybrid')}</option>
            <option value="lexical">{t('mode_lexical')}</option>
          </select>
        </Field>
        <button type="submit" class="button primary" data-testid="knowledge-search">
          <Icon name="search" />
          {t('search')}
        </button>
      </form>
      {error.value && <ErrorBox error={error.value} />}
      {found && (
        <div aria-live="polite">
          <p class="muted">
            {t('results_n', { count: found.results.length })} · {t('mode')}: {word(found.routing.mode)}
            {found.routing.degraded && ` · ${word(found.routing.degraded)}`}
          </p>
          {found.results.length === 0 && <Empty icon="search" title={t('search_nothing')} />}
          <ol class="hits">
            {found.results.map((hit) => (
              <li class="card" key={hit.id} data-testid="knowledge-hit" data-document={hit.document_id}>
                <div class="card-head">
                  <h3>{hit.title}</h3>
                  <span class="ranks">
                    <span>{t('rank_words')} <strong>{rank(hit.rank_bm25)}</strong></span>
                    <span>{t('rank_meaning')} <strong>{rank(hit.rank_vector)}</strong></span>
                    <span>{t('score')} <strong>{number(hit.score, 3)}</strong></span>
                  </span>
                </div>
                {hit.heading && <p class="muted">{hit.heading}</p>}
                <p class="raw-text clamp">{hit.content}</p>
              </li>
            ))}
          </ol>
        </div>
      )}
    </Section>
  );
}

/** A collection exists from its first document on. Until then it is empty, and everybody may read it. */
function unlessMissing<T>(instead: T) {
  return (error: unknown): T => {
    if (error instanceof ApiError && error.status === 404) return instead;
    throw error;
  };
}

const names = (text: string) => text.split(',').map((name) => name.trim()).filter(Boolean);

function Rights({ collection }: { collection: string }) {
  const rights = useResource((signal) => api.get('/api/knowledge/collections/{name}/rights', { path: { name: collection }, signal }).catch(unlessMissing({ collection, read: ['*'], write: [], trust: 'trusted' })), [collection]);
  const change = useSignal<{ read: string; write: string; trust: string } | null>(null);
  return (
    <Section title={t('rights')}>
      <Loaded of={rights}>
        {(data) => {
          const form = change.value ?? { read: data.read.join(', '), write: data.write.join(', '), trust: data.trust };
          const set = (values: Partial<typeof form>) => (change.value = { ...form, ...values });
          const save = async () => {
            await api.put('/api/knowledge/collections/{name}/rights', { path: { name: collection }, body: { read: names(form.read), write: names(form.write), trust: form.trust } });
            change.value = null;
            await rights.reload();
          };
          return (
            <div class="form-grid">
              <Field label={t('rights_read')} hint={t('rights_hint')}>
                <input value={form.read} onInput={(event) => set({ read: event.currentTarget.value })} />
              </Field>
              <Field label={t('rights_write')}>
                <input value={form.write} onInput={(event) => set({ write: event.currentTarget.value })} />
              </Field>
              <Field label={t('trust')} hint={t('trust_hint')}>
                <select value={form.trust} onChange={(event) => set({ trust: event.currentTarget.value })}>
                  <option value="trusted">{word('trusted')}</option>
                  <option value="untrusted">{word('untrusted')}</option>
                </select>
              </Field>
              <ActionButton label={t('save')} kind="primary" action={save} disabled={!change.value} />
            </div>
          );
        }}
      </Loaded>
    </Section>
  );
}

function Documents({ collection, version, changed }: { collection: string; version: number; changed: () => void }) {
  const list = useResource((signal) => api.get('/api/knowledge/documents', { query: { collection, limit: 200 }, signal }).catch(unlessMissing({ documents: [], next_after: null })), [collection, version]);
  const remove = (id: string) => async () => {
    await api.delete('/api/knowledge/documents/{id}', { path: { id }, query: { collection } });
    changed();
  };
  return (
    <Section title={t('documents')}>
      <Loaded of={list}>
        {({ documents }) =>
          documents.length ? (
            <ul class="item-list plain">
              {documents.map((document) => (
                <li key={document.id}>
                  <span class="item-title">{document.title}</span>
                  <span class="muted">{t('chunks_n', { count: document.chunks })}</span>
                  <ActionButton label={t('delete')} kind="quiet" action={remove(document.id)} />
                </li>
              ))}
            </ul>
          ) : (
            <Empty icon="knowledge" title={t('documents_empty_title')}>
              {t('documents_empty')}
            </Empty>
          )
        }
      </Loaded>
    </Section>
  );
}

export function KnowledgeView() {
  const chosen = useSignal('default');
  const version = useSignal(0);
  const changed = () => (version.value += 1);
  const list = useResource((signal) => api.get('/api/knowledge/collections', { signal }), [version.value]);
  const collection = chosen.value;
  const view = useResource((signal) => api.get('/api/knowledge/collections/{name}', { path: { name: collection }, signal }), [collection, version.value]);
  const known = [...new Set(['default', ...(list.data.value?.collections ?? []), collection])];
  return (
    <Page title={t('nav_knowledge')} intro={t('knowledge_intro')}>
      <form class="filters" onSubmit={(event) => event.preventDefault()}>
        <Field label={t('collection')}>
          <input
            list="collections"
            value={collection}
            data-testid="knowledge-collection"
            onChange={(event) => (chosen.value = event.currentTarget.value.trim() || 'default')}
          />
          <datalist id="collections">
            {known.map((name) => (
              <option value={name} />
            ))}
          </datalist>
        </Field>
      </form>
      {view.data.value && (
        <Facts
          rows={[
            [t('documents'), number(view.data.value.documents)],
            [t('chunks'), number(view.data.value.chunks)],
            [t('embedded'), number(view.data.value.embedded)],
            [t('pending'), number(view.data.value.pending)],
            [t('failed'), number(view.data.value.failed)],
            [t('languages'), view.data.value.languages.join(', ') || '–'],
            [t('embedding_model'), view.data.value.embedding_model ?? t('words_only')],
          ]}
        />
      )}
      <Search collection={collection} />
      <Upload collection={collection} done={changed} />
      <Documents collection={collection} version={version.value} changed={changed} />
      {isAdmin.value && <Rights key={collection} collection={collection} />}
    </Page>
  );
}
