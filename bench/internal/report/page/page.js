"use strict";
(() => {
  const root = document.documentElement;
  const css = name => getComputedStyle(root).getPropertyValue(name).trim();

  // Times are logarithmic: the page takes logarithms itself, so that an axis
  // can begin anywhere.
  const log = v => Math.log10(Math.max(v, 1));

  const significant = (v, n) => {
    if (v === 0) return "0";
    return v.toFixed(Math.max(0, n - 1 - Math.floor(Math.log10(Math.abs(v)))));
  };
  const time = ns => {
    for (const [scale, unit] of [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]]) {
      if (ns >= scale * 0.9995) return significant(ns / scale, 3).replace(/\.0+$/, "") + " " + unit;
    }
    return significant(ns, 3).replace(/\.0+$/, "") + " ns";
  };
  const percent = share => {
    const nines = significant(100 * share, share > 0.99 ? 5 : 3);
    return (nines.includes(".") ? nines.replace(/\.?0+$/, "") : nines) + " %";
  };
  const count = v => v >= 1000 ? Math.round(v).toLocaleString("en") : significant(v, 3).replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "");

  // An axis says how a value is placed, where its marks are, and what they say.
  const decades = (lo, hi) => {
    const out = [], steps = hi - lo < 0.8 ? [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8] : hi - lo < 2.5 ? [1, 2, 5] : [1];
    for (let d = Math.floor(lo); d <= Math.ceil(hi); d++) {
      for (const s of steps) {
        const v = d + Math.log10(s);
        if (v >= lo && v <= hi) out.push(v);
      }
    }
    return out;
  };
  const axes = {
    percentile: {
      title: "percentile", put: v => v,
      say: v => percent(1 - 10 ** -v),
      marks: (lo, hi) => [0, Math.log10(2), 1, 2, 3, 4].filter(v => v <= hi),
      range: (lo, hi) => [0, Math.max(hi, 1)],
    },
    time: { title: "time", put: log, say: v => time(10 ** v), marks: decades, range: (lo, hi) => [lo - 0.1, hi + 0.1] },
    load: {
      title: "callers", put: v => Math.log2(v), say: v => count(2 ** v),
      marks: (lo, hi, values) => values, range: (lo, hi) => [lo - 0.3, hi + 0.3],
    },
    count: { put: v => v, say: count, marks: null, range: (lo, hi) => [0, hi * 1.08 || 1] },
    share: { put: v => v, say: v => percent(v), marks: () => [0, 0.25, 0.5, 0.75, 1], range: () => [0, 1.03] },
  };

  // Families differ in colour and in marker, their members in the dash.
  const dashes = [[], [7, 4], [2, 3], [9, 3, 2, 3], [5, 2], [1, 5], [12, 4], [3, 6]];
  const markers = [
    p => p.arc(0, 0, 1, 0, 7),
    p => p.rect(-0.9, -0.9, 1.8, 1.8),
    p => { p.moveTo(0, -1.2); p.lineTo(1.1, 0.8); p.lineTo(-1.1, 0.8); p.closePath(); },
    p => { p.moveTo(0, -1.3); p.lineTo(1.3, 0); p.lineTo(0, 1.3); p.lineTo(-1.3, 0); p.closePath(); },
    p => { p.moveTo(0, 1.2); p.lineTo(1.1, -0.8); p.lineTo(-1.1, -0.8); p.closePath(); },
    p => { p.rect(-1.2, -0.4, 2.4, 0.8); p.rect(-0.4, -1.2, 0.8, 2.4); },
  ];
  const outlines = [
    "M-1 0a1 1 0 1 0 2 0a1 1 0 1 0 -2 0", "M-.9-.9h1.8v1.8h-1.8z", "M0-1.2L1.1.8L-1.1.8z",
    "M0-1.3L1.3 0L0 1.3L-1.3 0z", "M0 1.2L1.1-.8L-1.1-.8z", "M-1.2-.4h2.4v.8h-2.4zM-.4-1.2h.8v2.4h-.8z",
  ];
  const colour = line => css("--c" + Math.min(line.family, 5));
  const dash = line => dashes[line.dash % dashes.length];
  const marker = line => line.family % markers.length;

  function mark(u, line, i) {
    const { ctx, bbox } = u, size = 3.6 * devicePixelRatio, aside = (i % 5 - 2) * 3 * devicePixelRatio;
    let last = -Infinity;
    ctx.save();
    ctx.setLineDash([]);
    ctx.fillStyle = ctx.strokeStyle = colour(line);
    ctx.lineWidth = devicePixelRatio;
    u.data[0].forEach((x, n) => {
      const y = u.data[i][n];
      if (y == null) return;
      const px = u.valToPos(x, "x", true), py = u.valToPos(y, "y", true);
      const interval = line.intervals && line.intervals.get(x);
      if (interval) {
        const inside = v => Math.min(Math.max(u.valToPos(v, "y", true), bbox.top), bbox.top + bbox.height);
        ctx.beginPath(); // beside the point, so that those of several lines are seen
        ctx.moveTo(px + aside, inside(interval[0]));
        ctx.lineTo(px + aside, inside(interval[1]));
        ctx.stroke();
      }
      if (px - last < 34 * devicePixelRatio) return;
      last = px;
      ctx.save();
      ctx.translate(px, py);
      ctx.scale(size, size);
      ctx.beginPath();
      markers[marker(line)](ctx);
      ctx.fill();
      ctx.restore();
    });
    ctx.restore();
  }

  // The band is hatched, and named inside.
  function hatch(u, band, put) {
    const { ctx, bbox } = u;
    const from = u.valToPos(put(band.from), "x", true), until = u.valToPos(put(band.until), "x", true);
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.beginPath();
    ctx.rect(from, bbox.top, until - from, bbox.height);
    ctx.clip();
    ctx.strokeStyle = css("--line");
    ctx.lineWidth = 2 * devicePixelRatio;
    for (let x = from - bbox.height; x < until; x += 8 * devicePixelRatio) {
      ctx.beginPath();
      ctx.moveTo(x, bbox.top + bbox.height);
      ctx.lineTo(x + bbox.height, bbox.top);
      ctx.stroke();
    }
    ctx.restore();
    ctx.save();
    ctx.fillStyle = css("--dim");
    ctx.font = 12 * devicePixelRatio + "px system-ui, sans-serif";
    ctx.textAlign = "right";
    ctx.fillText(band.label + " →", Math.max(from, bbox.left) - 6 * devicePixelRatio, bbox.top + bbox.height * 0.62);
    ctx.restore();
  }

  // table turns the lines of a view into columns over one x.
  function table(view, x, y) {
    let end = -Infinity;
    for (const l of view.lines) for (const p of l.points) end = Math.max(end, x.put(p[0]));
    if (view.band) end = Math.max(end, x.put(view.band.until));
    return uPlot.join(view.lines.map(l => {
      const xs = l.points.map(p => x.put(p[0])), ys = l.points.map(p => y.put(p[1]));
      l.intervals = new Map(l.points.filter(p => p.length > 3).map(p => [x.put(p[0]), [y.put(p[2]), y.put(p[3])]]));
      if (view.y === "share" && xs.length) { // steps begin at zero and go on to the end
        xs.unshift(xs[0] - 1e-9);
        ys.unshift(0);
        if (end > xs[xs.length - 1]) { xs.push(end); ys.push(1); }
      }
      return [xs, ys];
    }));
  }

  class Chart {
    constructor(spec) {
      this.spec = spec;
      this.figure = document.getElementById(spec.id);
      this.plot = this.figure.querySelector(".plot");
      this.legend = this.figure.querySelector(".legend");
      this.tables = [...this.figure.querySelectorAll(".view")];
      this.view = 0;
      this.controls();
      this.draw();
      new ResizeObserver(() => this.resize()).observe(this.plot);
    }

    controls() {
      const label = document.createElement("label"), select = document.createElement("select");
      this.spec.views.forEach((v, i) => select.add(new Option(v.label, i)));
      select.disabled = this.spec.views.length < 2;
      select.addEventListener("change", () => { this.view = +select.value; this.draw(); });
      label.append("shown: ", select);
      this.figure.querySelector(".controls").append(label);
    }

    size() {
      const width = Math.max(240, this.plot.clientWidth);
      return { width, height: Math.round(Math.min(380, Math.max(260, width * 0.45))) };
    }

    resize() {
      const size = this.size();
      if (size.width !== this.u.width) this.u.setSize(size);
    }

    draw() {
      if (this.u) this.u.destroy();
      const view = this.spec.views[this.view], x = axes[this.spec.x], y = axes[view.y];
      const data = table(view, x, y), steps = view.y === "share";
      this.tables.forEach((t, i) => { t.hidden = i !== this.view; });
      this.list(view);
      const axis = (a, values, side) => ({
        stroke: css("--fg"), font: "12px system-ui, sans-serif",
        grid: { stroke: css("--line"), width: 1 }, ticks: { stroke: css("--line"), width: 1 },
        ...(a.marks ? { splits: (u, i, lo, hi) => a.marks(lo, hi, values) } : {}),
        values: (u, all) => all.map(v => a.say(v)),
        ...side,
      });
      this.u = new uPlot({
        ...this.size(),
        legend: { show: false },
        cursor: { points: { show: false }, drag: { x: false, y: false } },
        scales: {
          x: { time: false, range: (u, lo, hi) => x.range(lo, hi) },
          y: { range: (u, lo, hi) => lo == null ? [0, 1] : y.range(lo, hi) },
        },
        axes: [axis(x, data[0], { space: 60, label: x.title, labelSize: 20, labelFont: "12px system-ui, sans-serif" }), axis(y, [], { size: 72, label: view.ytitle, labelSize: 20, labelFont: "12px system-ui, sans-serif" })],
        series: [{}, ...view.lines.map(l => ({
          label: l.name, show: l.shown, stroke: colour(l), width: l.dash ? 1.4 : 2.2, dash: dash(l), spanGaps: true, points: { show: false },
          ...(steps ? { paths: uPlot.paths.stepped({ align: 1 }) } : {}),
        }))],
        hooks: {
          drawClear: [u => { if (view.band) hatch(u, view.band, x.put); }],
          draw: [u => {
            view.lines.forEach((l, i) => { if (l.shown) mark(u, l, i + 1); });
            this.figure.dataset.drawn = view.lines.filter(l => l.shown).length;
          }],
          setCursor: [u => this.read(u, view, x, y)],
        },
      }, data, this.plot);
    }

    // list makes a button for each line: it says which it is, shows and hides
    // it, and has its value under the pointer.
    list(view) {
      this.legend.replaceChildren(...view.lines.map((l, i) => {
        const item = document.createElement("li"), button = document.createElement("button");
        button.type = "button";
        button.setAttribute("aria-pressed", l.shown);
        button.innerHTML = `<svg viewBox="0 0 34 12" aria-hidden="true"><path d="M0 6H34" fill="none"/><path/></svg><span></span><output></output>`;
        const [stroke, shape] = button.querySelectorAll("path");
        stroke.style.cssText = `stroke:${colour(l)};stroke-width:${l.dash ? 1.4 : 2.2};stroke-dasharray:${dash(l).join(" ")}`;
        shape.setAttribute("d", outlines[marker(l)]);
        shape.setAttribute("transform", "translate(17 6) scale(4)");
        shape.style.fill = colour(l);
        button.querySelector("span").textContent = l.name;
        button.addEventListener("click", () => {
          l.shown = !l.shown;
          button.setAttribute("aria-pressed", l.shown);
          this.u.setSeries(i + 1, { show: l.shown });
        });
        item.append(button);
        return item;
      }));
    }

    read(u, view, x, y) {
      this.legend.querySelectorAll("output").forEach((out, i) => {
        let n = u.cursor.idx;
        if (n == null) { out.textContent = ""; return; }
        while (n > 0 && u.data[i + 1][n] == null) n--;
        const v = u.data[i + 1][n];
        out.textContent = v == null ? "" : y.say(v);
      });
    }
  }

  const charts = JSON.parse(document.getElementById("charts").textContent).map(spec => new Chart(spec));
  const redraw = () => charts.forEach(c => c.draw());

  // The theme follows the system until the reader chooses.
  const system = matchMedia("(prefers-color-scheme: dark)");
  const theme = document.getElementById("theme");
  const choices = ["", "light", "dark"];
  const show = choice => {
    if (choice) root.dataset.theme = choice; else delete root.dataset.theme;
    theme.textContent = "theme: " + (choice || "as the system");
    redraw();
  };
  const stored = () => { try { return localStorage.getItem("lockbench-theme") || ""; } catch { return ""; } };
  theme.hidden = false;
  theme.addEventListener("click", () => {
    const next = choices[(choices.indexOf(root.dataset.theme || "") + 1) % choices.length];
    try { localStorage.setItem("lockbench-theme", next); } catch { /* a page from a file may not store */ }
    show(next);
  });
  system.addEventListener("change", redraw);
  if (stored()) show(stored()); else show("");

  // Tables are sorted by a column's button: numbers by their value.
  document.querySelectorAll("table.sortable").forEach(t => {
    t.querySelectorAll("thead th").forEach((th, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...th.childNodes);
      th.append(button);
      th.setAttribute("aria-sort", "none");
      button.addEventListener("click", () => {
        const up = th.getAttribute("aria-sort") !== "ascending";
        t.querySelectorAll("thead th").forEach(o => o.setAttribute("aria-sort", "none"));
        th.setAttribute("aria-sort", up ? "ascending" : "descending");
        const value = row => {
          const c = row.cells[column];
          return c.dataset.value !== undefined ? +c.dataset.value : c.textContent;
        };
        const rows = [...t.tBodies[0].rows];
        rows.sort((a, b) => {
          const x = value(a), y = value(b);
          if (x === "" || y === "") return (x === "") - (y === ""); // nothing comes last
          const order = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y), "en", { numeric: true });
          return up ? order : -order;
        });
        t.tBodies[0].append(...rows);
      });
    });
  });
})();
