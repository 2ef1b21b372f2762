/** Calls: every tool call, newest first, with the explanation of one beside the list. */
import { useEffect, useMemo } from 'preact/hooks';
import { actingFor, api } from '../api/client';
import { live, onHints } from '../api/hints';
import { duration, moment, number, shortId } from '../format';
import { t, word } from '../i18n';
import { Empty, ErrorBox, Field, Page, Status } from '../parts/basics';
import { Icon } from '../parts/icons';
import { VirtualList } from '../parts/virtual-list';
import { useResource } from '../resource';
import { BASE, query, segments, setQuery, to } from '../router';
import { CallDetail } from './call';
import { type CallFilter, CallList, type CallRow, STATUSES } from './call-list';

const ROW_HEIGHT = 56;

function Filters({ filter, rows }: { filter: CallFilter; rows: readonly CallRow[] }) {
  const tools = useResource((signal) => api.get('/api/tools', { signal }), []);
  const names = new Set(tools.data.value?.tools.map((tool) => tool.name));
  // Calls of tools that no longer exist are still there.
  for (const row of rows.slice(0, 500)) names.add(row.tool);
  if (filter.tool) names.add(filter.tool);
  const set = (change: Partial<CallFilter>) => setQuery({ ...filter, ...change });
  return (
    <form class="filters" onSubmit={(event) => event.preventDefault()} aria-label={t('filter')}>
      <Field label={t('tool')}>
        <select data-testid="calls-filter-tool" value={filter.tool} onChange={(event) => set({ tool: event.currentTarget.value })}>
          <option value="">{t('all')}</option>
          {[...names].sort().map((name) => (
            <option value={name}>{name}</option>
          ))}
        </select>
      </Field>
      <Field label={t('status')}>
        <select data-testid="calls-filter-status" value={filter.status} onChange={(event) => set({ status: event.currentTarget.value as CallFilter['status'] })}>
          <option value="">{t('all')}</option>
          {STATUSES.map((status) => (
            <option value={status}>{word(status)}</option>
          ))}
        </select>
      </Field>
      {filter.conversation_id && (
        <button type="button" class="button quiet" onClick={() => set({ conversation_id: '' })}>
          {t('conversation')} {shortId(filter.conversation_id)} <Icon name="close" />
        </button>
      )}
    </form>
  );
}

function Row({ row, current, search }: { row: CallRow; current: boolean; search: string }) {
  return (
    <a class="call-row" data-testid="call-row" data-id={row.id} data-status={row.status} data-tool={row.tool} href={to('calls', row.id) + search} aria-current={current ? 'true' : undefined}>
      <span class="call-tool">{row.tool}</span>
      <Status status={row.status} />
      <span class="call-summary">{row.code ?? row.summary}</span>
      <span class="call-marks">
        {row.tainted && <span class="mark">{t('taint')}</span>}
        {row.cacheHit && <span class="mark">{t('from_cache')}</span>}
        {row.attempt > 1 && <span class="mark">{t('attempts_n', { count: row.attempt })}</span>}
      </span>
      <span class="call-time">{moment(row.createdAt)}</span>
      <span class="call-took">{duration(row.tookMs)}</span>
    </a>
  );
}

export function CallsView() {
  const id = segments.value[1];
  const params = query.value;
  const filter: CallFilter = { tool: params.get('tool') ?? '', status: STATUSES.find((one) => one === params.get('status')) ?? '', conversation_id: params.get('conversation_id') ?? '' };
  const search = params.size ? `?${params.toString()}` : '';
  const list = useMemo(() => new CallList(filter), [filter.tool, filter.status, filter.conversation_id, actingFor.value]);
  useEffect(() => {
    const end = onHints((hints) => list.hint(hints));
    return () => {
      end();
      list.close();
    };
  }, [list]);

  const rows = list.rows.value;
  const filtered = filter.tool || filter.status || filter.conversation_id;
  return (
    <div class={`split ${id ? 'has-detail' : ''}`}>
      <Page
        title={t('nav_calls')}
        intro={t('calls_intro')}
        actions={<span class={`live ${live.value ? 'on' : ''}`}>{live.value ? t('live') : t('not_live')}</span>}
      >
        <Filters filter={filter} rows={rows} />
        {list.error.value && <ErrorBox error={list.error.value} retry={() => void list.loadMore()} />}
        {!list.loaded.value && !list.error.value && <p class="loading">{t('loading')}</p>}
        {list.loaded.value && !rows.length && (
          <Empty icon="calls" title={filtered ? t('calls_none_match') : t('calls_empty_title')}>
            {filtered ? <a href={`${BASE}/calls`}>{t('clear_filter')}</a> : <a href={to('chat')}>{t('calls_empty')}</a>}
          </Empty>
        )}
        {rows.length > 0 && (
          <VirtualList
            rows={rows}
            rowHeight={ROW_HEIGHT}
            label={t('nav_calls')}
            keyOf={(row) => row.id}
            render={(row) => <Row row={row} current={row.id === id} search={search} />}
            onEnd={() => void list.loadMore()}
            footer={<p class="muted pad">{list.more.value ? t('loading') : t('calls_n', { count: number(rows.length) })}</p>}
          />
        )}
      </Page>
      {id && (
        <aside class="detail" aria-label={t('call')}>
          <a class="button quiet small" href={to('calls') + search}>
            <Icon name="close" />
            {t('close')}
          </a>
          <CallDetail key={id} id={id} />
        </aside>
      )}
    </div>
  );
}
