/** Charts. Their colours are those of the theme, so a chart is drawn again when the theme changes. */
import { useEffect, useRef } from 'preact/hooks';
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { day } from '../format';
import { language } from '../i18n';
import { dark } from '../settings';

interface Props {
  /** Days, as seconds since 1970. */
  days: number[];
  values: number[];
  format: (value: number) => string;
  label: string;
}

const HEIGHT = 240;
const token = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export function DayChart({ days, values, format, label }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const theme = dark.value;
  const texts = language.value;

  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const axis = { stroke: token('--text-soft'), grid: { stroke: token('--line'), width: 1 }, ticks: { show: false }, font: `12px ${token('--font')}` };
    const bars = uPlot.paths.bars?.({ size: [0.7, 48], radius: 0.15 });
    const plot = new uPlot(
      {
        width: element.clientWidth,
        height: HEIGHT,
        legend: { show: false },
        cursor: { y: false, points: { show: false }, drag: { x: false, y: false } },
        scales: { x: { time: true, range: (_, min, max) => [min - 43_200, max + 43_200] }, y: { range: (_, __, max) => [0, max > 0 ? max * 1.1 : 1] } },
        axes: [
          { ...axis, grid: { show: false }, values: (_, splits) => splits.map((split) => day(new Date(split * 1000))), incrs: [86_400, 2 * 86_400, 7 * 86_400, 14 * 86_400, 28 * 86_400], space: 64 },
          { ...axis, values: (_, splits) => splits.map(format), size: 72 },
        ],
        series: [{}, { label, stroke: token('--accent'), fill: token('--accent'), width: 0, paths: bars, points: { show: false } }],
        tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), 'Etc/UTC'),
      },
      [days, values],
      element,
    );
    const observer = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height: HEIGHT }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      plot.destroy();
    };
  }, [days, values, theme, texts, label]);

  return <div class="chart" ref={box} data-testid="usage-chart" role="img" aria-label={label} />;
}

/** Amounts by name as bars, the largest first. */
export function Bars({ rows, format, empty }: { rows: { name: string; value: number; note?: string }[]; format: (value: number) => string; empty: string }) {
  const largest = Math.max(0, ...rows.map((row) => row.value));
  if (!rows.length) return <p class="muted">{empty}</p>;
  return (
    <ul class="bars">
      {rows.map((row) => (
        <li>
          <span class="bar-name" title={row.name}>
            {row.name}
          </span>
          <span class="bar-value">{format(row.value)}</span>
          <span class="bar-track">
            <span class="bar-fill" style={{ width: largest ? `${(100 * row.value) / largest}%` : '0' }} />
          </span>
          {row.note && <span class="bar-note">{row.note}</span>}
        </li>
      ))}
    </ul>
  );
}
