/** A list of any length of which only the rows in sight are elements. All rows have the same height. */
import type { ComponentChildren } from 'preact';
import { useEffect, useLayoutEffect, useRef } from 'preact/hooks';
import { useSignal } from '@preact/signals';

interface Props<T> {
  rows: readonly T[];
  rowHeight: number;
  label: string;
  keyOf: (row: T) => string;
  render: (row: T) => ComponentChildren;
  /** Called when the end of the rows comes near. */
  onEnd?: () => void;
  footer?: ComponentChildren;
}

/** Rows before and after the visible ones, so that a fast scroll does not show a gap. */
const EXTRA = 12;
const MAX_ROWS = 160;

export function VirtualList<T>({ rows, rowHeight, label, keyOf, render, onEnd, footer }: Props<T>) {
  const box = useRef<HTMLDivElement>(null);
  const top = useSignal(0);
  const height = useSignal(600);
  const frame = useRef(0);

  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const observer = new ResizeObserver(() => (height.value = element.clientHeight));
    observer.observe(element);
    height.value = element.clientHeight;
    return () => {
      observer.disconnect();
      cancelAnimationFrame(frame.current);
    };
  }, []);

  // New rows are added on top. Whoever reads further down keeps the rows in sight that were in sight.
  const first = useRef<string | null>(null);
  useLayoutEffect(() => {
    const element = box.current;
    const known = first.current;
    first.current = rows[0] ? keyOf(rows[0]) : null;
    if (!element || known === null || element.scrollTop < rowHeight) return;
    const moved = rows.slice(0, 2000).findIndex((row) => keyOf(row) === known);
    if (moved > 0) element.scrollTop += moved * rowHeight;
  }, [rows]);

  const from = Math.max(0, Math.floor(top.value / rowHeight) - EXTRA);
  const count = Math.min(MAX_ROWS, Math.ceil(height.value / rowHeight) + 2 * EXTRA);
  const shown = rows.slice(from, from + count);
  const nearEnd = from + count >= rows.length;

  useEffect(() => {
    if (nearEnd) onEnd?.();
  }, [nearEnd, rows.length]);

  const onScroll = () => {
    cancelAnimationFrame(frame.current);
    frame.current = requestAnimationFrame(() => {
      if (box.current) top.value = box.current.scrollTop;
    });
  };

  return (
    <div class="virtual" ref={box} onScroll={onScroll} role="group" aria-label={label} tabIndex={0}>
      <div class="virtual-space" role="list" style={{ height: `${rows.length * rowHeight}px` }}>
        {shown.map((row, index) => (
          <div class="virtual-row" role="listitem" key={keyOf(row)} style={{ transform: `translateY(${(from + index) * rowHeight}px)`, height: `${rowHeight}px` }}>
            {render(row)}
          </div>
        ))}
      </div>
      {footer}
    </div>
  );
}
