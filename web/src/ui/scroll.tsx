import type { ComponentChildren } from 'preact'
import { useLayoutEffect, useRef, useState } from 'preact/hooks'

/** A wide table that scrolls sideways; the keyboard reaches it only while there is something to scroll. */
export function Scroll({ children }: { children: ComponentChildren }) {
  const ref = useRef<HTMLDivElement>(null)
  const [scrolls, set] = useState(false)
  useLayoutEffect(() => {
    const e = ref.current
    if (!e) return
    const measure = () => set(e.scrollWidth > e.clientWidth)
    measure()
    const observer = new ResizeObserver(measure)
    observer.observe(e)
    if (e.firstElementChild) observer.observe(e.firstElementChild)
    return () => observer.disconnect()
  }, [])
  return <div class="scroll" ref={ref} tabIndex={scrolls ? 0 : undefined}>{children}</div>
}
