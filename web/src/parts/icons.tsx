/** Line icons on a 20-pixel grid. They are decoration: every icon stands beside a text or in a button with a label. */
const PATHS = {
  chat: 'M4 4h12a1 1 0 0 1 1 1v8a1 1 0 0 1-1 1H9l-4 3v-3H4a1 1 0 0 1-1-1V5a1 1 0 0 1 1-1z',
  calls: 'M4 5h12M4 10h12M4 15h7',
  approvals: 'M10 3l6 2v5c0 4-2.5 6-6 7-3.500-1-6-3-6-7V5zM7.500 10l2 2 3.500-4',
  tools: 'M12.500 3.500a4 4 0 0 0-4.300 5.300L3.500 13.500l3 3 4.700-4.700a4 4 0 0 0 5.300-4.300l-2.500 2.500-3-.5-.5-3z',
  knowledge: 'M4 4h5a2 2 0 0 1 1 .5A2 2 0 0 1 11 4h5v11h-5a1.500 1.500 0 0 0-1 .5 1.500 1.500 0 0 0-1-.5H4zM10 5v10',
  usage: 'M4 16V9M8 16V4M12 16v-5M16 16V7',
  people: 'M7.500 10a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM2.500 16c0-2.800 2.200-4.500 5-4.500s5 1.700 5 4.500M13 4.300a3 3 0 0 1 0 5.400M14.500 12c1.800.6 3 2 3 4',
  outbox: 'M3 11l2-7h10l2 7v5H3zM3 11h4l1 2h4l1-2h4',
  audit: 'M5 3h7l3 3v11H5zM8 8h4M8 11h4M8 14h2',
  send: 'M3.500 10l13-6-4 13-3-5.500zM9.500 11.500L16 4.500',
  plus: 'M10 4v12M4 10h12',
  close: 'M5 5l10 10M15 5L5 15',
  check: 'M4 10.500l4 4 8-9',
  back: 'M12 4l-6 6 6 6',
  menu: 'M3 6h14M3 10h14M3 14h14',
  sun: 'M10 6.500a3.500 3.500 0 1 1 0 7 3.500 3.500 0 0 1 0-7zM10 2v1.500M10 16.500V18M2 10h1.500M16.500 10H18M4.300 4.300l1 1M14.700 14.700l1 1M4.300 15.700l1-1M14.700 5.300l1-1',
  moon: 'M16 11.500A6.500 6.500 0 0 1 8.500 4 6.500 6.500 0 1 0 16 11.500z',
  leave: 'M8 4H4v12h4M12 6.500l4 3.500-4 3.500M16 10H8',
  upload: 'M10 13V4M6 8l4-4 4 4M4 13v3h12v-3',
  search: 'M9 14A5 5 0 1 0 9 4a5 5 0 0 0 0 10zM13 13l4 4',
  book: 'M5 3h10v14H5zM8 7h4M8 10h4',
  stop: 'M5.500 5.500h9v9h-9z',
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 20 20" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}
