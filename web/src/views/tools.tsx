/** Tools: what the assistant may call, under which conditions, and a form to try each one. */
import type { ComponentChildren } from 'preact';
import { useSignal } from '@preact/signals';
import { api, send } from '../api/client';
import type { Tool } from '../api/types';
import { duration, number } from '../format';
import { t, word } from '../i18n';
import { ActionButton, Empty, Facts, Json, Loaded, Page, Section, Status } from '../parts/basics';
import { Icon } from '../parts/icons';
import { Markdown } from '../parts/markdown';
import { type FormValue, FormError, objectOf, type Schema } from '../parts/schema';
import { SchemaFields } from '../parts/schema-form';
import { useResource } from '../resource';
import { segments, to } from '../router';
import { type ForeignTools, McpServers, serverOf, useForeignTools } from './mcp-servers';

function ToolList({ tools, current, foreign }: { tools: Tool[]; current: string | undefined; foreign: ForeignTools | undefined }) {
  return (
    <ul class="item-list">
      {tools.map((tool) => (
        <li key={tool.name}>
          <a href={to('tools', tool.name)} data-testid="tool-row" data-tool={tool.name} aria-current={tool.name === current ? 'true' : undefined}>
            <span class="item-title">{tool.name}</span>
            <span class="item-text">{tool.description}</span>
            <span class="item-marks">
              <span class={`effect ${tool.effect}`}>{word(tool.effect)}</span>
              {tool.approval.length > 0 && <span class="mark">{t('needs_approval')}</span>}
              {tool.trust === 'untrusted' && <span class="mark">{word('untrusted')}</span>}
              {serverOf(foreign, tool.name) && <span class="mark">MCP</span>}
            </span>
          </a>
        </li>
      ))}
    </ul>
  );
}

interface Output {
  status: string;
  took?: number;
  job: string | null;
  body: unknown;
}

function TryIt({ tool }: { tool: Tool }) {
  const schema = tool.parameters as Schema;
  const value = useSignal<{ [name: string]: FormValue }>({});
  const raw = useSignal<string | null>(null);
  const output = useSignal<Output | null>(null);
  const input = (): unknown => {
    if (raw.value === null) {
      try {
        return objectOf(value.value, schema, schema);
      } catch (error) {
        throw error instanceof FormError ? new Error(t('field_wrong', { field: error.field })) : error;
      }
    }
    try {
      return JSON.parse(raw.value) as unknown;
    } catch {
      throw new Error(t('json_wrong'));
    }
  };
  const run = async () => {
    const response = await send('post', '/api/tools/{name}/invoke', { path: { name: tool.name }, body: { input: input() } });
    const body = (await response.json()) as { status?: string; meta?: { took_ms?: number }; job_id?: string };
    output.value = { status: body.status ?? 'ok', took: body.meta?.took_ms, job: response.headers.get('x-tool-call-id') ?? body.job_id ?? null, body };
  };
  const toggle = () => {
    if (raw.value !== null) raw.value = null;
    else {
      try {
        raw.value = JSON.stringify(input(), null, 2);
      } catch {
        raw.value = '{}';
      }
    }
  };
  const message = (output.value?.body as { data?: { message?: unknown } } | null | undefined)?.data?.message;
  return (
    <Section
      title={t('try_it')}
      actions={
        <button type="button" class="button quiet small" aria-pressed={raw.value !== null} onClick={toggle}>
          JSON
        </button>
      }
    >
      {tool.effect !== 'read' && <p class="warn-note">{t('try_effect')}</p>}
      <form
        onSubmit={(event) => {
          event.preventDefault();
        }}
      >
        {raw.value === null ? (
          <SchemaFields schema={schema} root={schema} value={value.value} onChange={(next) => (value.value = next)} />
        ) : (
          <textarea class="code-input" rows={8} spellcheck={false} aria-label={t('arguments')} value={raw.value} onInput={(event) => (raw.value = event.currentTarget.value)} />
        )}
        <div class="row">
          <ActionButton kind="primary" label={t('run_tool')} testid="tool-run" action={run} />
        </div>
      </form>
      {output.value && (
        <div class="output" data-testid="tool-output" aria-live="polite">
          <p>
            <Status status={output.value.status} /> {duration(output.value.took)} {output.value.job && <a href={to('calls', output.value.job)}>{t('open_call')}</a>}
          </p>
          {typeof message === 'string' && message && <Markdown text={message} />}
          <Json value={output.value.body} label={t('result')} />
        </div>
      )}
    </Section>
  );
}

function ToolDetail({ tool, server }: { tool: Tool; server: ReturnType<typeof serverOf> }) {
  return (
    <div class="tool-detail" data-testid="tool-detail">
      <header class="detail-head">
        <h2>{tool.name}</h2>
        <span class={`effect ${tool.effect}`}>{word(tool.effect)}</span>
      </header>
      <Markdown text={tool.description} />
      <Facts
        rows={[
          [t('effect'), `${word(tool.effect)} – ${t(tool.effect === 'read' ? 'effect_read' : tool.effect === 'once' ? 'effect_once' : 'effect_idempotent')}`],
          [t('permission'), tool.permission ? <code>{tool.permission}</code> : t('permission_free')],
          [t('approval'), tool.approval.length ? tool.approval.join(', ') : t('approval_not_needed')],
          [t('source'), server ? t('source_mcp', { name: server.name }) : t('source_server')],
          ...(server ? ([[t('health'), <Status status={server.state} />]] as [string, ComponentChildren][]) : []),
          [t('trust'), word(tool.trust)],
          [t('external'), tool.external ? t('yes') : t('no')],
          [t('time_limit'), duration(tool.timeout_ms)],
          [t('attempts'), number(tool.attempts)],
          [t('reuse'), tool.reuse_s ? `${number(tool.reuse_s)} s` : '–'],
          [t('version'), <code>{tool.version}</code>],
        ]}
      />
      <p>
        <a href={`${to('calls')}?tool=${encodeURIComponent(tool.name)}`}>{t('calls_of_tool')}</a>
      </p>
      <TryIt key={tool.name} tool={tool} />
      <details class="part">
        <summary>{t('schema')}</summary>
        <div class="part-body">
          <Json value={tool.parameters} label={t('schema')} />
        </div>
      </details>
    </div>
  );
}

export function ToolsView() {
  const name = segments.value[1];
  const list = useResource((signal) => api.get('/api/tools', { signal }), []);
  const foreign = useForeignTools();
  return (
    <div class={`split ${name ? 'has-detail' : ''}`}>
      <Page title={t('nav_tools')} intro={t('tools_intro')}>
        <Loaded of={list}>
          {({ tools }) => (tools.length ? <ToolList tools={tools} current={name} foreign={foreign.data.value} /> : <Empty icon="tools" title={t('tools_empty_title')}>{t('tools_empty')}</Empty>)}
        </Loaded>
        <McpServers foreign={foreign} />
      </Page>
      {name && list.data.value && (
        <aside class="detail" aria-label={t('tool')}>
          <a class="button quiet small" href={to('tools')}>
            <Icon name="close" />
            {t('close')}
          </a>
          {list.data.value.tools
            .filter((tool) => tool.name === name)
            .map((tool) => (
              <ToolDetail key={tool.name} tool={tool} server={serverOf(foreign.data.value, tool.name)} />
            ))}
          {!list.data.value.tools.some((tool) => tool.name === name) && <Empty icon="tools" title={t('nothing_found')} />}
        </aside>
      )}
    </div>
  );
}
