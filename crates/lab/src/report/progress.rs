//! How far a run is: a bar on a terminal, lines elsewhere.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::error::Error;
use crate::experiment::{Case, Experiment};
use crate::schedule::Schedule;
use crate::workload::Sample;

use super::{number, say};

/// How often the bar's time moves.
const TICK: Duration = Duration::from_millis(200);

/// Shows how far a run is.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// Says how long the run takes; `said` comes first.
    pub(crate) fn start(experiment: &Experiment, said: Option<&str>, schedule: &Schedule) -> Self {
        said.into_iter().for_each(say);
        let (runs, time) = (schedule.runs(), rough(schedule.estimate()));
        say(&format!("{}: {runs} runs, about {time}", experiment.name));
        if !std::io::stdout().is_terminal() {
            return Self(ProgressBar::hidden());
        }
        let bar = ProgressBar::with_draw_target(Some(runs as u64), ProgressDrawTarget::stdout());
        let style = ProgressStyle::with_template("{wide_bar} {pos} of {len} {elapsed_precise} {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.enable_steady_tick(TICK);
        Self(bar)
    }

    /// These are being measured, at the same time.
    pub(crate) fn begin(&self, cases: &[Case]) {
        let others = cases.len().saturating_sub(1);
        let title = cases.first().map(Experiment::title).unwrap_or_default();
        self.0.set_message(if others == 0 { title } else { format!("{title} and {others} more") });
    }

    pub(crate) fn show(&self, case: &Case, sample: &Sample) {
        let metric = |(name, value): &(std::borrow::Cow<str>, f64)| format!("{name} {}", number(*value));
        self.line(case, &sample.metrics.iter().map(metric).collect::<Vec<_>>().join(", "));
    }

    pub(crate) fn fail(&self, case: &Case, error: &Error) {
        self.line(case, &format!("not measured: {error}"));
    }

    pub(crate) fn finish(&self) {
        self.0.finish_and_clear();
    }

    fn line(&self, case: &Case, text: &str) {
        let line = format!("{}: {text}", Experiment::title(case));
        self.0.suspend(|| say(&line));
        self.0.inc(1);
    }
}

/// As a person says it: seconds below two minutes, then minutes, then hours.
pub(crate) fn rough(duration: Duration) -> String {
    match duration.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds.div_ceil(60)),
        seconds => format!("{:.1} h", seconds as f64 / 3600.0),
    }
}
