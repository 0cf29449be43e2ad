// Icons as strokes on a grid of 16, drawn for this page.
const paths = {
  overview: 'M2 13V8M6 13V3M10 13V6M14 13V9',
  worklist: 'M2 4h1M6 4h8M2 8h1M6 8h8M2 12h1M6 12h5',
  cost: 'M8 2v12M11 4.5C10 3.6 9 3.5 8 3.5c-1.700 0-3 .8-3 2.200C5 9 11 7 11 10.300c0 1.400-1.300 2.200-3 2.200-1.200 0-2.300-.4-3.200-1.300',
  autoscaling: 'M2 12l4-5 3 3 5-7M10.500 3H14v3.500',
  nodes: 'M2.500 2.500h4v4h-4zM9.500 2.500h4v4h-4zM2.500 9.500h4v4h-4zM9.500 9.500h4v4h-4z',
  rules: 'M3 2.500h10v11H3zM5.500 6h5M5.500 8.500h5M5.500 11h3',
  health: 'M1.500 8.500h3l2-5 3 9 2-4h3',
  menu: 'M2 4h12M2 8h12M2 12h12',
  sun: 'M8 5a3 3 0 100 6 3 3 0 000-6zM8 1v1.500M8 13.500V15M1 8h1.500M13.500 8H15M3 3l1 1M12 12l1 1M13 3l-1 1M4 12l-1 1',
  lock: 'M4 7h8v6.500H4zM5.500 7V5a2.500 2.500 0 015 0v2',
  offline: 'M2 2l12 12M4 6.500a7 7 0 012-1M1.500 4.500A10 10 0 014 3M8 4c2.500 0 4.800 1 6.500 2.500M6 9a3.500 3.500 0 014 0M8 12.500h.01',
  clock: 'M8 2a6 6 0 100 12A6 6 0 008 2zM8 5v3.500l2.500 1.500',
  warning: 'M8 2.500l6 11H2zM8 6.500v3.500M8 12h.01',
  empty: 'M2 9l2-6h8l2 6v4H2zM2 9h4l1 2h2l1-2h4',
  copy: 'M5.500 5.500h8v8h-8zM3.500 10.500h-1v-8h8v1',
  learning: 'M2 12c2-6 3-6 4-3s2 3 3-1 2-4 3 0',
}

export type IconName = keyof typeof paths

export function Icon({ name }: { name: IconName }) {
  return <svg viewBox="0 0 16 16" aria-hidden="true"><path d={paths[name]} /></svg>
}
