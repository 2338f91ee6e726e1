//! `nawa lab report` as a reader sees it: in a browser, on a phone and on a desk, by day and by night.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{nawa, skip, succeed};
use serde_json::Value;

/// Shows the report in a frame of so many CSS pixels, and then what its layout is.
const LOOK: &str = r#"<!doctype html><iframe id=f src="report.html" style="width:WIDTHpx;height:900px;border:0"></iframe>
<script>f.onload = () => {
  const page = f.contentDocument, charts = [...page.querySelectorAll('figure svg[role=img]')].map(chart => chart.getBoundingClientRect());
  const texts = [...page.querySelectorAll('figure svg[role=img]')].map(svg => [...svg.querySelectorAll('text')].map(text => text.getBoundingClientRect()));
  const meet = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4;
  const light = colour => Math.max(...colour.match(/\d+/g).map(Number));
  const style = page.defaultView.getComputedStyle(page.body);
  document.body.innerHTML = '<pre>' + JSON.stringify({
    width: page.documentElement.scrollWidth, charts: charts.length,
    outside: charts.filter(chart => chart.left < 0 || chart.right > WIDTH).length,
    cut: texts.filter((own, at) => own.some(text => text.left < charts[at].left - 1 || text.right > charts[at].right + 1)).length,
    unreadable: texts.filter(own => own.some((a, at) => own.slice(at + 1).some(b => meet(a, b)))).length,
    flat: charts.filter(chart => chart.height < 40).length,
    columns: new Set(charts.map(chart => Math.round(chart.left))).size, back: light(style.backgroundColor), text: light(style.color) }) + '</pre>';
}</script>"#;

fn results() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results")
}

#[test]
fn a_browser_draws_the_report_at_any_width() {
    if Command::new("chromium").arg("--version").output().is_err() {
        return skip("a_browser_draws_the_report_at_any_width", "needs chromium");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let page = folder.path().join("report.html");
    let (from, to) = (results().display().to_string(), page.display().to_string());
    succeed(&mut nawa(["lab", "report", &from, "--html", &to]));
    for (width, columns) in [(360, 1), (1300, 3)] {
        let look = folder.path().join("look.html");
        fs::write(&look, LOOK.replace("WIDTH", &width.to_string())).expect("a page");
        for dark in [true, false] {
            let scheme = format!("--blink-settings=preferredColorScheme={}", u8::from(!dark));
            let mut browser = Command::new("chromium");
            browser.args(["--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files"]);
            browser.arg(format!("--user-data-dir={}", folder.path().join("profile").display()));
            browser.args([&scheme, "--virtual-time-budget=10000", "--dump-dom"]).arg(&look);
            let shown = succeed(&mut browser);
            let json = shown.split_once("<pre>").and_then(|(_, rest)| rest.split_once("</pre>"));
            let seen: Value = serde_json::from_str(json.expect("a layout").0).expect("JSON");
            let number = |name: &str| seen[name].as_u64().unwrap_or_else(|| panic!("{name}: {seen}"));
            assert!(number("width") <= width, "the page is wider than {width}: {seen}");
            assert!(number("charts") >= 5, "{seen}");
            for wrong in ["outside", "flat", "cut", "unreadable"] {
                assert_eq!(number(wrong), 0, "{wrong} at {width}: {seen}");
            }
            assert_eq!(number("columns"), columns, "at {width}: {seen}");
            assert_eq!(dark, number("back") < number("text"), "dark {dark}: {seen}");
        }
    }
}
