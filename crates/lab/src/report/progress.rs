//! How far a run is: a bar on a terminal, lines elsewhere.

use std::io::IsTerminal;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::error::Error;
use crate::experiment::{Case, Experiment};
use crate::schedule::Schedule;
use crate::workload::Sample;

use super::{number, say};

/// How often the bar moves.
const TICK: Duration = Duration::from_millis(200);

/// Shows how far a run is. The bar's length is the time that the run is said to take.
pub(crate) struct Progress {
    bar: ProgressBar,
    ticker: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Progress {
    /// Says how long the run takes; `said` comes first.
    pub(crate) fn start(experiment: &Experiment, said: Option<&str>, schedule: &Schedule) -> Self {
        let estimate = schedule.estimate();
        said.into_iter().for_each(say);
        say(&format!("{}: {} runs, about {}", experiment.name, schedule.runs(), rough(estimate)));
        let bar = if std::io::stdout().is_terminal() { bar(estimate) } else { ProgressBar::hidden() };
        let ticker = tick(bar.clone(), estimate);
        Self { bar, ticker }
    }

    /// These are being measured, at the same time.
    pub(crate) fn begin(&self, cases: &[Case]) {
        let others = cases.len().saturating_sub(1);
        let title = cases.first().map(Experiment::title).unwrap_or_default();
        self.bar.set_message(if others == 0 { title } else { format!("{title} and {others} more") });
    }

    pub(crate) fn show(&self, case: &Case, sample: &Sample) {
        let metrics: Vec<String> =
            sample.metrics.iter().map(|(name, value)| format!("{name} {}", number(*value))).collect();
        self.line(case, &metrics.join(", "));
    }

    pub(crate) fn fail(&self, case: &Case, error: &Error) {
        self.line(case, &format!("not measured: {error}"));
    }

    pub(crate) fn finish(&mut self) {
        self.stop_ticker();
        self.bar.finish_and_clear();
    }

    fn line(&self, case: &Case, text: &str) {
        let line = format!("{}: {text}", Experiment::title(case));
        self.bar.suspend(|| say(&line));
    }

    fn stop_ticker(&mut self) {
        if let Some((stop, thread)) = self.ticker.take() {
            drop(stop);
            let _ = thread.join();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.stop_ticker();
    }
}

/// Moves the bar with the time. Without the thread it stands still.
fn tick(bar: ProgressBar, estimate: Duration) -> Option<(Sender<()>, JoinHandle<()>)> {
    let (stop, stopped) = channel();
    let tick = move || {
        let mut elapsed = Duration::ZERO;
        while stopped.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
            elapsed = (elapsed + TICK).min(estimate);
            bar.set_position(millis(elapsed));
        }
    };
    std::thread::Builder::new().spawn(tick).ok().map(|thread| (stop, thread))
}

fn bar(estimate: Duration) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(millis(estimate)), ProgressDrawTarget::stdout());
    let style = ProgressStyle::with_template("{wide_bar} {percent:>3} % {elapsed_precise} {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// As a person says it: seconds below two minutes, then minutes, then hours.
pub(crate) fn rough(duration: Duration) -> String {
    match duration.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds.div_ceil(60)),
        seconds => format!("{:.1} h", seconds as f64 / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_said_roughly() {
        assert_eq!(rough(Duration::from_secs(90)), "90 s");
        assert_eq!(rough(Duration::from_secs(121)), "3 min");
        assert_eq!(rough(Duration::from_secs(9000)), "2.5 h");
    }
}
