/** Audit: who changed what, newest first, and whether the chain of hashes is unbroken. */
import { useRef } from 'preact/hooks';
import { useSignal } from '@preact/signals';
import { api } from '../api/client';
import type { AuditEntry } from '../api/types';
import { dateTime, number } from '../format';
import { t } from '../i18n';
import { ActionButton, Empty, Json, Loaded, Page } from '../parts/basics';
import { VirtualList } from '../parts/virtual-list';
import { useResource } from '../resource';
import { personName } from '../session';

const PAGE = 500;
const ROW_HEIGHT = 48;

/** The newest entries, and older ones as far as a person reads on. */
async function load(rows: number, signal: AbortSignal): Promise<{ entries: AuditEntry[]; more: boolean }> {
  const entries: AuditEntry[] = [];
  let after: number | undefined;
  do {
    const page = await api.get('/api/audit', { query: { after, limit: PAGE, order: 'desc' }, signal });
    entries.push(...page.audit);
    after = page.next_after ?? undefined;
  } while (after !== undefined && entries.length < rows);
  return { entries, more: after !== undefined };
}

function actor(entry: AuditEntry): string {
  if (entry.actor.user_id) return personName(entry.actor.user_id);
  return entry.actor.operator ? t('operator') : entry.actor.key_id ? t('a_key') : t('server');
}

function Row({ entry, select }: { entry: AuditEntry; select: () => void }) {
  return (
    <button type="button" class="audit-row" data-testid="audit-row" onClick={select}>
      <span class="audit-seq">{entry.seq}</span>
      <span class="audit-time">{dateTime(entry.at)}</span>
      <strong class="audit-action">{entry.action}</strong>
      <span class="audit-subject">{entry.subject}</span>
      <span class="audit-actor">{actor(entry)}</span>
    </button>
  );
}

export function AuditView() {
  const rows = useRef(PAGE);
  const list = useResource((signal) => load(rows.current, signal), []);
  const loadMore = () => {
    const shown = list.data.value;
    if (!shown?.more || rows.current > shown.entries.length) return;
    rows.current = shown.entries.length + PAGE;
    void list.reload();
  };
  const selected = useSignal<AuditEntry | null>(null);
  const verdict = useSignal<string | null>(null);
  const verify = async () => {
    const found = await api.get('/api/audit/verify');
    const entries = found.chains.reduce((sum, chain) => sum + chain.entries, 0);
    const broken = found.chains.find((chain) => chain.break)?.break;
    verdict.value = found.intact ? t('audit_intact', { count: number(entries) }) : t('audit_broken', { seq: broken?.seq ?? '?' });
  };
  const entry = selected.value;
  return (
    <Page title={t('nav_audit')} intro={t('audit_intro')} actions={<ActionButton label={t('audit_verify')} testid="audit-verify" action={verify} />}>
      {verdict.value && (
        <p class="note" role="status">
          {verdict.value}
        </p>
      )}
      <Loaded of={list}>
        {({ entries, more }) =>
          entries.length ? (
            <>
              {entry && (
                <section class="card audit-detail" aria-label={t('audit_entry')}>
                  <div class="card-head">
                    <h2>
                      {entry.action} · {entry.subject}
                    </h2>
                    <button type="button" class="button quiet small" onClick={() => (selected.value = null)}>
                      {t('close')}
                    </button>
                  </div>
                  <p class="muted">
                    {dateTime(entry.at)} · {actor(entry)} {entry.address && `· ${entry.address}`}
                  </p>
                  <div class="columns">
                    <div>
                      <h3>{t('before')}</h3>
                      <Json value={entry.before ?? null} label={t('before')} />
                    </div>
                    <div>
                      <h3>{t('after')}</h3>
                      <Json value={entry.after ?? null} label={t('after')} />
                    </div>
                  </div>
                  <p class="muted">
                    <code>{entry.hash}</code>
                  </p>
                </section>
              )}
              <VirtualList
                rows={entries}
                rowHeight={ROW_HEIGHT}
                label={t('nav_audit')}
                keyOf={(row) => String(row.seq)}
                render={(row) => <Row entry={row} select={() => (selected.value = row)} />}
                onEnd={loadMore}
                footer={more && <p class="muted pad">{t('loading')}</p>}
              />
            </>
          ) : (
            <Empty icon="audit" title={t('audit_empty_title')}>
              {t('audit_empty')}
            </Empty>
          )
        }
      </Loaded>
    </Page>
  );
}
