// The usual solution, which does not use that the problem has only K distinct columns: every cluster becomes
// ⌈N/K⌉ slots, and an assignment solver works on the N × slots matrix. The solver is the shortest augmenting
// path method of Jonker and Volgenant in Crouse's rectangular form, as in SciPy's linear_sum_assignment.

/** Cluster of each point, at minimum total cost with at most ⌈n/k⌉ points per cluster. cost: [n × k]. */
export function slotExpanded(cost, n, k) {
  const capacity = Math.ceil(n / k)
  const slots = k * capacity
  const expanded = new Float64Array(n * slots)
  for (let i = 0; i < n; i++) {
    for (let c = 0, at = i * slots; c < k; c++, at += capacity)
      expanded.fill(cost[i * k + c], at, at + capacity)
  }
  const column = assign(expanded, n, slots)
  return Int32Array.from(column, slot => Math.floor(slot / capacity))
}

/**
 * Column of each row in a cheapest assignment of all rows to different columns. cost: [rows × columns], rows
 * ≤ columns.
 */
export function assign(cost, rows, columns) {
  const u = new Float64Array(rows) // dual prices
  const v = new Float64Array(columns)
  const distance = new Float64Array(columns)
  const via = new Int32Array(columns) // the row from which a column was reached
  const columnOf = new Int32Array(rows).fill(-1)
  const rowOf = new Int32Array(columns).fill(-1)
  const remaining = new Int32Array(columns) // columns not yet scanned, packed
  const scannedRows = new Int32Array(rows)
  const scannedColumns = new Int32Array(columns)

  for (let start = 0; start < rows; start++) {
    for (let j = 0; j < columns; j++) remaining[j] = columns - 1 - j
    distance.fill(Infinity)
    let left = columns
    let [scanned, lowest, row, sink] = [0, 0, start, -1]
    while (sink === -1) {
      scannedRows[scanned] = row
      const base = lowest - u[row]
      const at = row * columns
      let best = -1
      let least = Infinity
      for (let n = 0; n < left; n++) {
        const j = remaining[n]
        const reached = base + cost[at + j] - v[j]
        let known = distance[j]
        if (reached < known) {
          via[j] = row
          distance[j] = known = reached
        }
        // Among equal columns prefer a free one: the path ends there.
        if (known < least || (known === least && rowOf[j] === -1)) {
          least = known
          best = n
        }
      }
      lowest = least
      const j = remaining[best]
      if (rowOf[j] === -1) sink = j
      else row = rowOf[j]
      scannedColumns[scanned++] = j
      remaining[best] = remaining[--left]
    }
    u[start] += lowest
    for (let n = 1; n < scanned; n++) u[scannedRows[n]] += lowest - distance[columnOf[scannedRows[n]]]
    for (let n = 0; n < scanned; n++) v[scannedColumns[n]] -= lowest - distance[scannedColumns[n]]
    for (let j = sink, row = -1; row !== start;) {
      row = via[j]
      rowOf[j] = row
      const previous = columnOf[row]
      columnOf[row] = j
      j = previous
    }
  }
  return columnOf
}
