//! `nawa top`: the daemon's state on a whole screen, again and again. What is shown is [`model`]'s, how it looks [`draw`]'s; the
//! terminal is [`screen`]'s.

mod draw;
mod model;
mod screen;

use std::io::{self, IsTerminal};
use std::rc::Rc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use device::poller::{Interest, Poller, Signals, Waker};
use device::{monotonic, process};
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use serde_json::Value;

use self::draw::Look;
use self::model::Model;
use self::screen::Screen;
use super::{monitor, status};
use crate::control::{Request, client::Daemon};
use crate::failure::Failure;
use crate::terminal;

/// A daemon that has not answered for so long is said not to.
const PATIENCE: Duration = Duration::from_secs(3);
const SIGNALS: u64 = 0;
const NEWS: u64 = 1;
const KEYS: u64 = 2;

/// What the daemon said, or why it says nothing.
type News = Result<Value, String>;

/// Shows the state until it is told to stop; where there is no terminal, or a dumb one, as lines.
pub fn run(interval: Duration) -> Result<(), Failure> {
    if !(io::stdout().is_terminal() && io::stdin().is_terminal() && terminal::obeys(terminal::variable)) {
        return monitor::run(false, interval);
    }
    let daemon = Daemon::connect()?;
    let wait = |error: io::Error| Failure::failed(format!("cannot wait: {error}"));
    // Before the thread that asks, so that signals come here.
    let signals = Signals::new().map_err(wait)?;
    let waker = Waker::new().map_err(wait)?;
    let (stop, news) = ask_in_background(daemon, interval, waker.clone()).map_err(wait)?;
    let mut screen =
        Screen::open().map_err(|error| Failure::failed(format!("cannot use this terminal: {error}")))?;
    let ended = process::outcome(|| watch(&mut screen, &signals, &waker, &news, interval));
    drop(screen);
    drop(stop);
    ended.map_err(|why| Failure::failed(format!("the screen has ended: {why}")))
}

/// A thread asks, so that keys are heard while a daemon does not answer. It ends when the first of what is returned is dropped.
fn ask_in_background(
    daemon: Daemon,
    interval: Duration,
    waker: Waker,
) -> io::Result<(Sender<()>, Receiver<News>)> {
    let (stop, stopped) = mpsc::channel::<()>();
    let (sender, news) = mpsc::channel();
    let mut daemon = Some(daemon);
    let ask = move || {
        loop {
            let answer = ask(&mut daemon);
            if sender.send(answer).is_err() {
                return;
            }
            waker.wake();
            if !matches!(stopped.recv_timeout(interval), Err(RecvTimeoutError::Timeout)) {
                return;
            }
        }
    };
    std::thread::Builder::new().name("asks".into()).spawn(ask)?;
    Ok((stop, news))
}

/// Asks the daemon, another one if that has gone.
fn ask(daemon: &mut Option<Daemon>) -> News {
    let sentence = |failure: Failure| failure.why();
    if daemon.is_none() {
        *daemon = Daemon::find().map_err(sentence)?;
    }
    let Some(there) = daemon else { return Err("no daemon is running: waiting for one".into()) };
    there.ask(Request::Status).map_err(|failure| {
        *daemon = None;
        sentence(failure)
    })
}

fn watch(
    screen: &mut Screen<io::Stdout>,
    signals: &Signals,
    waker: &Waker,
    news: &Receiver<News>,
    interval: Duration,
) -> io::Result<()> {
    let mut poller = Poller::new()?;
    poller.add(signals, SIGNALS, Interest::Read)?;
    poller.add(waker, NEWS, Interest::Read)?;
    poller.add(io::stdin(), KEYS, Interest::Read)?;
    let (look, mut model) = (Look::of_environment(), Model::new(interval));
    let mut heard = monotonic();
    loop {
        for answer in news.try_iter() {
            heard = monotonic();
            match answer.and_then(read) {
                Ok(state) => model.handle_state(heard, Rc::new(state)),
                Err(why) => model.handle_silence(why),
            }
        }
        if monotonic() > heard + interval + PATIENCE {
            heard = monotonic();
            model.handle_silence("the daemon does not answer: waiting for it".into());
        }
        screen.draw(|frame| draw::draw(frame, &mut model, look))?;
        // A window that changes its size interrupts this, and is drawn anew.
        for ready in poller.wait(Some(interval + PATIENCE))? {
            if ready.token == NEWS {
                waker.reset();
            }
        }
        if signals.next().is_some() {
            return Ok(());
        }
        while event::poll(Duration::ZERO)? {
            if let Event::Key(key) = event::read()?
                && key.kind != KeyEventKind::Release
                && model.handle_key(key)
            {
                return Ok(());
            }
        }
    }
}

fn read(state: Value) -> Result<status::view::State, String> {
    if let Some(error) = state.get("error").and_then(Value::as_str) {
        return Err(error.to_owned());
    }
    status::read(state).map_err(|failure| failure.why())
}
