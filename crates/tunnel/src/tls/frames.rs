//! Datagrams in a stream of bytes: each after its length, 16 bits, the most significant first.

/// The longest datagram: what fits into an outer packet of 1500 bytes, which no path's is larger than.
pub const MAX: usize = 1500;

/// What cannot come from the other end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a frame of {0} bytes: not the other end of a path")]
pub struct Wrong(pub usize);

/// Appends `datagram` to `out`; false, and nothing is appended, if no frame holds it.
pub fn put(out: &mut Vec<u8>, datagram: &[u8]) -> bool {
    let fits = (1..=MAX).contains(&datagram.len());
    if fits {
        out.extend((datagram.len() as u16).to_be_bytes());
        out.extend(datagram);
    }
    fits
}

/// Takes datagrams out of a stream that comes in pieces.
#[derive(Debug, Default)]
pub struct Frames {
    /// The beginning of a frame: less than a whole one.
    kept: Vec<u8>,
}

impl Frames {
    /// Calls `each` for the datagrams that `piece` completes.
    ///
    /// # Errors
    /// The stream is wrong from here on.
    pub fn take(&mut self, mut piece: &[u8], mut each: impl FnMut(&[u8])) -> Result<(), Wrong> {
        while !piece.is_empty() {
            if self.kept.is_empty()
                && let Some((head, rest)) = piece.split_first_chunk()
                && let Some((datagram, rest)) = rest.split_at_checked(length(*head)?)
            {
                each(datagram);
                piece = rest;
                continue;
            }
            // In two steps, so that no more is kept than belongs to this frame.
            let wanted = match self.kept.first_chunk() {
                Some(head) => 2 + length(*head)?,
                None => 2,
            };
            let (part, rest) = piece.split_at(piece.len().min(wanted - self.kept.len()));
            self.kept.extend(part);
            piece = rest;
            if let Some((head, datagram)) = self.kept.split_first_chunk()
                && datagram.len() == length(*head)?
            {
                each(datagram);
                self.kept.clear();
            }
        }
        Ok(())
    }
}

fn length(head: [u8; 2]) -> Result<usize, Wrong> {
    let length = usize::from(u16::from_be_bytes(head));
    if (1..=MAX).contains(&length) { Ok(length) } else { Err(Wrong(length)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(frames: &mut Frames, pieces: &[&[u8]]) -> Result<Vec<Vec<u8>>, Wrong> {
        let mut all = Vec::new();
        for piece in pieces {
            frames.take(piece, |datagram| all.push(datagram.to_vec()))?;
        }
        Ok(all)
    }

    #[test]
    fn datagrams_come_out_as_they_went_in_however_the_stream_is_cut() {
        let datagrams = [vec![7; MAX], vec![8], vec![9; 300], vec![1, 2]];
        let mut stream = Vec::new();
        assert!(datagrams.iter().all(|datagram| put(&mut stream, datagram)));
        for size in [1, 2, 3, 100, 301, 1500, 1501, 1502, 1503, 5000] {
            let pieces: Vec<_> = stream.chunks(size).collect();
            let mut frames = Frames::default();
            assert_eq!(taken(&mut frames, &pieces).unwrap(), datagrams, "{size}");
            assert!(frames.kept.is_empty());
        }
    }

    #[test]
    fn what_is_no_frame_ends_it_and_little_is_kept() {
        assert_eq!(taken(&mut Frames::default(), &[&[0, 0]]), Err(Wrong(0)));
        assert_eq!(taken(&mut Frames::default(), &[&[0, 1, 9, 5, 221]]), Err(Wrong(MAX + 1)));
        assert_eq!(taken(&mut Frames::default(), &[b"G", b"ET / HTTP/1.1"]), Err(Wrong(0x4745)));
        let mut frames = Frames::default();
        assert_eq!(taken(&mut frames, &[&[5, 220], &[0; 1499]]), Ok(vec![]));
        assert_eq!(frames.kept.len(), 1501);
        let mut out = Vec::new();
        assert!(!put(&mut out, &[]) && !put(&mut out, &[0; MAX + 1]) && out.is_empty());
    }
}
