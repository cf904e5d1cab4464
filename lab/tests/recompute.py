"""Computes the first screen and channel-io again: recompute.py RUN.jsonl REPORT.md, of `siga lab report RUN.jsonl --format markdown`."""
import csv, io, json, math, re, statistics, sys, tomllib
UNITS, checked, wrong = {"thousand": 1e3, "million": 1e6, "kB": 1e3, "MB": 1e6, "GB": 1e9, "µs": 1e3, "ms": 1e6, "s": 1e9}, 0, []
FIGURE = re.compile(r"([-+]?[\d.]+)(?: \(([-\d.]+)\.\.([-\d.]+)[^)]*\))?( %)?(?: ([^±()]+?))?(?: ±(>?\d+)%)?( \(noise\))?(?: \(.*\))?$")
def many(value): return value if isinstance(value, list) else [value] if value else []
def has(cell, wanted): return wanted.items() <= cell.items()
def distinct(of): return [one for at, one in enumerate(of) if one not in of[:at]]
def digits(x):
    places = 0 if abs(x) >= 99.95 else 1 if abs(x) >= 9.995 else 2 if abs(x) >= 0.9995 else 0 if abs(x) < 5e-7 else 2 - math.floor(math.log10(abs(x)))
    return f"{x if abs(x) >= 5e-7 else 0:.{min(6, places)}f}"
def interval(values, error=0.05):  # As many are left out on each side as the sign test allows.
    outside = sum(2 * sum(math.comb(n, k) for k in range(out + 1)) <= error * 2**n for n in [len(values)] for out in range(n // 2))
    return (sorted(values)[outside - 1], sorted(values)[len(values) - outside]) if outside else None
class Case:
    def __init__(self, name, lines):
        self.lines = [one for one in lines if (one["case"], one["run"]) == (name, max(l["run"] for l in lines if l["case"] == name))]
        self.toml, self.texts = next((tomllib.loads(l["definition"]), l.get("published")) for l in self.lines if "definition" in l)
        self.cells = distinct([one["factors"] for one in self.lines])
    def samples(self, cell, metric):
        return {one["trial"]: (one["metrics"][metric], one.get("state", {}).get("line_ns", []))
                for one in self.lines if one["factors"] == cell and metric in one["metrics"]}
    def values(self, cell, metric): return [value for value, _ in self.samples(cell, metric).values()] if cell else []
    def best(self, metric, fits):
        cells = [cell for cell in self.cells if fits(cell) and self.values(cell, metric)]
        sign = 1 if "rate_" in metric or any(one["name"] == metric and one.get("better") == "more" for one in self.toml.get("metric", [])) else -1
        return max(cells, key=lambda cell: sign * statistics.median(self.values(cell, metric)), default=None)
    def rounds(self, one, other, metric, is_ratio):
        one, other = self.samples(one, metric), self.samples(other, metric)
        both = [(*one[t], *other[t]) for t in one if t in other and (other[t][0] or not is_ratio)]
        return [a / b if is_ratio else a - b for a, x, b, y in both if not (x and y) or max(x + y) <= 1.5 * min(x + y)]
    def published(self, metric, cell):
        for table in [table for table in many(self.toml.get("published")) if metric in table["metrics"]]:
            return [float(row[table["metrics"][metric]]) for row in csv.DictReader(io.StringIO(self.texts[table["file"]]))
                    if all(row[column] == str(cell.get(factor)) for factor, column in table["factors"].items())]
def check(where, printed, values, metric="", half=False, noise=None):
    global checked
    checked, found = checked + 1, FIGURE.match(printed)
    if not values or not found: return None if printed == "-" and not values else wrong.append((where, printed, values))
    unit = (found[5] or re.split(", |<br>", where)[-1]).split("/")[0].split(" ")[0]
    scale = 1 if found[4] or unit in ("ms", "s") and "_ns" not in metric else UNITS.get(unit, 1)
    middle, (least, most) = statistics.median(values) / scale, [end / scale for end in interval(values) or (min(values), max(values))]
    right = (f"{(middle - 1) * 100:+.1f}" if found[4] and found[1][0] in "+-" else digits(middle)) == found[1].lstrip("" if found[4] else "+")
    spread = 50 * (max(values) - min(values)) / scale / abs(middle) if middle else math.inf if any(values) else 0
    right &= not found[2] or [digits(least), digits(most)] == [found[2], found[3]]
    right &= found[6] == ((">100" if spread >= 100.5 else str(math.floor(spread + 0.5))) if half and len(values) > 1 else None)
    if not right or noise is not None and bool(found[7]) != (least < noise < most): wrong.append((where, printed, middle, least, most, spread))
def screen(cases, heads, rows, said, halves=()):
    columns = {column["heading"]: (case, column) for case in cases for column in case.toml.get("screen", {}).get("column", [])}
    for row, at, (case, column) in [(row, at, columns[heads[at].split("<br>")[0]]) for row in rows for at in range(1, len(heads))]:
        of = [{**column.get("only", {}), **one} for named in case.toml["screen"]["row"] if named["name"] == row[0]
              for one in named.get("of", []) + [*named.get("best", {}).values()]]
        fits = lambda cell: any(all(cell.get(f, 0 if f in ("rate", "think", "load_percent") else l) == l for f, l in one.items()) for one in of)
        values = case.values(case.best(column["metric"], fits), column["metric"])
        figure, mark, _ = re.fullmatch(r"(-|[\d.]+(?: [^ ~?]*/s| [nµm]?s)?)([~?]?)( .*)?", row[at]).groups()
        check(heads[at], figure, values, column["metric"])
        half = (interval(values)[1] - interval(values)[0]) / 2 / statistics.median(values) if values and interval(values) else math.inf
        halves = sorted([*halves, half] if half < math.inf else halves)
        if values and mark != ("" if half <= 0.1 else "~" if half <= 0.5 else "?"): wrong.append((heads[at], row[at], half))
    typical, worst = [f"{half:.0%}" if half < 10 else "over 1000%" for half in (halves[len(halves) // 2], halves[-1])]
    if f"within ±{typical} typically, ±{worst} at worst" not in said.replace(" %", "%"): wrong.append(halves)
def table(case, table, grids):
    each, down, base = many(table.get("each")), many(table["down"]), table.get("base", {})
    cells = [cell for cell in case.cells if has(cell, table.get("only", {}))]
    def place(part): return [[cell[factor] for cell in cells].index(level) for factor, level in part.items()]
    def parts(factors): return sorted(distinct([{factor: cell[factor] for factor in factors} for cell in cells]), key=place)
    for part, (heads, rows) in zip(parts(each), grids):
        wanted = [({**part, **own}, show) for own in parts(down) for show in table.get("show", ["absolute"])]
        for row, (cell, show) in zip(rows, [(cell, show) for cell, show in wanted if show == "absolute" or not has(cell, base)], strict=True):
            at = len(down)
            for metric in many(table["metric"]):
                best, other = [case.best(metric, lambda one: has(one, own) and one in cells) for own in (cell, {**cell, **base})]
                if show == "absolute": check(heads[at], row[at], case.values(best, metric), metric, half=len(many(table["metric"])) > 1)
                else: check(heads[at], row[at], case.rounds(best, other, metric, show == "percent"), metric, noise=float(show == "percent"))
                there = table.get("published") and case.published(metric, best)
                if there and show == "absolute": check(heads[at], row[at + 1], there, metric)
                if there and show == "absolute": check("", row[at + 2], [statistics.median(case.values(best, metric)) / there[0]])
                at += 3 if there else 1
def claim(case, claim, row):
    metric, of, low, high = claim.get("metric"), claim.get("of", {}), claim.get("at_least", -math.inf), claim.get("at_most", math.inf)
    every = distinct([{f: cell[f] for f in many(claim.get("every"))} for cell in case.cells if metric and has(cell, of)])
    judged, words = [], ["holds", "undecided", "does not hold"]
    for here in every:
        sides = [case.best(metric, lambda cell: has(cell, {**here, **side})) for side in [of, *claim.get("against", [])]]
        if None in sides: continue
        values = case.values(sides[0], metric)
        if sides[1:]: values = case.rounds(sides[0], case.best(metric, lambda cell: cell in sides[1:]), metric, True)
        # One of many levels may be beyond its bound by chance.
        (least, most), surer = [interval(values, 0.05 / count) or (-math.inf, math.inf) for count in (1, len(every))]
        verdict = 0 if low <= least and most <= high else 2 if surer[1] < low or surer[0] > high else 1
        judged.append((verdict, max(-high / statistics.median(values), -statistics.median(values) / low if low > 0 else -math.inf), values))
    if found := max(judged, default=None): check(claim["name"] + ", ", re.sub("^(the worst of .*?: )?(ratio )?|, wanted.*", "", row[1].split("<br>")[1]), found[2], metric)
    if row[0] != (words[found[0]] if found else "not measured") and not any("failed" in line for line in case.lines): wrong.append((claim, row))
lines, text = [json.loads(line) for line in open(sys.argv[1])], open(sys.argv[2]).read()
def grids(text): return iter([([c.strip() for c in g[0][1:-1].split("|")], [[c.strip() for c in r[1:-1].split("|")] for r in g[2:]])
                              for g in [g.splitlines() for g in re.findall(r"(?:^\|.*\n)+", text.replace("\\|", "/"), re.M)]])
screen([Case(name, lines) for name in dict.fromkeys(one["case"] for one in lines)], *next(grids(text)), text)
case, own = Case("channel-io", lines), grids(text.split("\n## channel-io\n")[1].split("\n## ")[0])
for one, row in zip(case.toml["claim"], next(own)[1], strict=True): claim(case, one, row)
for one in case.toml["table"]: table(case, one, own)
sys.exit(print(f"{checked} figures, {len(wrong)} of them differ", *wrong, sep="\n") or len(wrong) > 0)
