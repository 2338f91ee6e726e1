//! The terminal: taken over, and given back whatever happens.

use std::io::{self, Stdout, Write};

use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::{Frame, Terminal, TerminalOptions, Viewport};

/// A terminal that is a screen. Dropping it, as a panic does, makes it what it was.
pub struct Screen<W: Write>(Terminal<CrosstermBackend<W>>);

impl Screen<Stdout> {
    /// Takes over the terminal on standard output.
    pub fn open() -> io::Result<Screen<Stdout>> {
        enable_raw_mode()?;
        Screen::on(io::stdout(), Viewport::Fullscreen).inspect_err(|_| drop(disable_raw_mode()))
    }
}

impl<W: Write> Screen<W> {
    fn on(mut out: W, viewport: Viewport) -> io::Result<Screen<W>> {
        execute!(out, EnterAlternateScreen, Hide)?;
        Terminal::with_options(CrosstermBackend::new(out), TerminalOptions { viewport }).map(Screen)
    }

    /// Draws what has changed.
    pub fn draw(&mut self, render: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.0.draw(render).map(drop)
    }
}

impl<W: Write> Drop for Screen<W> {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing back.
        let _ = execute!(self.0.backend_mut(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use ratatui::layout::Rect;

    use super::*;

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("nobody panics with it").extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_panic_gives_the_terminal_back_and_says_so() {
        let out = Shared::default();
        let written = out.clone();
        let ended = device::process::outcome(move || {
            let mut screen = Screen::on(out, Viewport::Fixed(Rect::new(0, 0, 80, 24)))?;
            screen.draw(|_| panic!("at {}", 7))
        });
        assert_eq!(ended, Err("a bug, please report it: at 7".into()));
        let written = written.0.lock().expect("nobody panics with it").clone();
        let written = String::from_utf8(written).expect("text");
        assert!(written.starts_with("\x1b[?1049h\x1b[?25l"), "{written:?}");
        assert!(written.contains("\x1b[?1049l\x1b[?25h"), "{written:?}");
    }
}
