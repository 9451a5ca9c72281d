//! The table of lanes: one line a lane, what needs somebody on top. Pure: a status, a width and the time in, text out.
//!
//! Owns the columns, their order, their colours, and what gives way on a narrow terminal. It must not print.

use std::time::Duration;

use super::figures::{count, safe, shortened, span};
use crate::supervisor::status::{BacklogStatus, FaultStatus, HostStatus, LaneState, LaneStatus};

/// Between two columns.
const GAP: usize = 2;
/// Below this the fault says nothing, and other columns give way.
const FAULT_LEAST: usize = 24;
/// A space's name gives way down to this.
const SPACE_LEAST: usize = 12;
/// A credential that ends within this time is about to be a fault.
const EXPIRY_SOON: Duration = Duration::from_secs(24 * 3600);
/// And within this time it needs somebody now.
const EXPIRY_NOW: Duration = Duration::from_secs(3600);

/// How a table is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// Columns of the terminal; `None` where nothing has to be shortened.
    pub width: Option<usize>,
    /// Lines of the terminal, where no more than these may be used.
    pub height: Option<usize>,
    /// Whether colours may be used.
    pub has_colour: bool,
    /// The time, milliseconds since the epoch.
    pub now_ms: u64,
}

/// What a cell is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ink {
    Plain,
    Bold,
    Dim,
    Green,
    Cyan,
    Yellow,
    Red,
}

impl Ink {
    fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Bold => "\u{1b}[1m",
            Self::Dim => "\u{1b}[2m",
            Self::Green => "\u{1b}[32m",
            Self::Cyan => "\u{1b}[36m",
            Self::Yellow => "\u{1b}[33m",
            Self::Red => "\u{1b}[31m",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Cell {
    text: String,
    ink: Ink,
}

impl Cell {
    fn new(text: impl Into<String>, ink: Ink) -> Self {
        Self { text: text.into(), ink }
    }

    fn plain(text: impl Into<String>) -> Self {
        Self::new(text, Ink::Plain)
    }

    /// Nothing to say.
    fn none() -> Self {
        Self::new("-", Ink::Dim)
    }

    fn chars(&self) -> usize {
        self.text.chars().count()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    Space,
    State,
    Since,
    Try,
    Revision,
    Rate,
    Backlog,
    Expires,
    Fault,
}

impl Column {
    const ALL: [Self; 9] = [
        Self::Space,
        Self::State,
        Self::Since,
        Self::Try,
        Self::Revision,
        Self::Rate,
        Self::Backlog,
        Self::Expires,
        Self::Fault,
    ];
    /// What gives way on a narrow terminal, in this order.
    const GIVING_WAY: [Self; 4] = [Self::Revision, Self::Try, Self::Backlog, Self::Since];

    fn head(self) -> &'static str {
        match self {
            Self::Space => "SPACE",
            Self::State => "STATE",
            Self::Since => "SINCE",
            Self::Try => "TRY",
            Self::Revision => "REV",
            Self::Rate => "COPIES/S",
            Self::Backlog => "BACKLOG",
            Self::Expires => "EXPIRES",
            Self::Fault => "FAULT",
        }
    }

    fn is_figure(self) -> bool {
        match self {
            Self::Space | Self::State | Self::Fault => false,
            Self::Since | Self::Try | Self::Revision | Self::Rate | Self::Backlog | Self::Expires => true,
        }
    }

    fn cell(self, lane: &LaneStatus, now_ms: u64) -> Cell {
        match self {
            Self::Space => Cell::plain(lane.space.as_str()),
            Self::State => state(lane),
            Self::Since => Cell::plain(span(age(lane.since_ms, now_ms))),
            Self::Try if lane.attempt > 1 => Cell::new(lane.attempt.to_string(), Ink::Yellow),
            Self::Try => Cell::plain(lane.attempt.to_string()),
            Self::Revision => lane.lease_revision.map_or_else(Cell::none, |revision| Cell::plain(revision.to_string())),
            Self::Rate => Cell::plain(count(lane.rates.copies_per_s)),
            Self::Backlog => Cell::plain(count(in_hand(&lane.backlog))),
            Self::Expires => expiry(lane.credential_expires_at_s, now_ms),
            Self::Fault => fault(lane, now_ms),
        }
    }
}

/// Draws the host's head line and the table.
#[must_use]
pub fn draw(host: &HostStatus, look: &Look) -> String {
    let mut out = head(host, look);
    let mut lanes: Vec<&LaneStatus> = host.lanes.iter().collect();
    lanes.sort_by(|a, b| (urgency(a), &a.space).cmp(&(urgency(b), &b.space)));
    if lanes.is_empty() {
        out.push_str("\nno lane: the manifest lists no space that is enabled\n");
        return out;
    }
    out.push('\n');
    // What the head, the column heads and the line about the rest need.
    let used = out.lines().count() + 2;
    let shown = look.height.map_or(lanes.len(), |height| height.saturating_sub(used).max(1)).min(lanes.len());
    let rest = lanes.len() - shown;
    grid(&mut out, &lanes[..shown], look);
    if rest > 0 {
        out.push_str(&format!("… and {rest} more\n"));
    }
    out
}

/// What needs somebody comes first.
fn urgency(lane: &LaneStatus) -> u8 {
    match lane.state {
        LaneState::Parked => 0,
        LaneState::Waiting => 1,
        LaneState::Closing => 2,
        LaneState::Opening => 3,
        LaneState::Standby => 4,
        LaneState::Serving => 5,
    }
}

fn head(host: &HostStatus, look: &Look) -> String {
    let mut parts = vec![format!("{} of {} serving", host.count(LaneState::Serving), host.lanes.len())];
    for state in LaneState::ALL.into_iter().filter(|state| *state != LaneState::Serving) {
        match host.count(state) {
            0 => {}
            number => parts.push(format!("{number} {state}")),
        }
    }
    let notes = [
        (!host.ready, "not every lane was attempted yet"),
        (host.draining, "draining"),
        (!host.watching, "files are polled"),
    ];
    let notes = notes.into_iter().filter_map(|(is_so, note)| is_so.then_some(note));
    let name = shorten(&safe(&host.host), look.width);
    let line = |text: &str| shorten(text, look.width);
    let mut out = paint(&name, Ink::Bold, look.has_colour);
    let generation = format!("  generation {}", host.generation);
    out.push_str(&generation);
    for note in notes {
        out.push_str(&paint(&format!(", {note}"), Ink::Yellow, look.has_colour));
    }
    out.push_str(&format!("\n{}\n", line(&parts.join(", "))));
    if let Some(outcome) = host.last_reload.as_ref().filter(|outcome| !outcome.applied) {
        let first = outcome.refused.first().map_or_else(String::new, |(what, why)| format!(": {what}: {why}"));
        let line = shorten(&safe(&format!("last reload refused{first}")), look.width);
        out.push_str(&paint(&line, Ink::Red, look.has_colour));
        out.push('\n');
    }
    out
}

fn grid(out: &mut String, lanes: &[&LaneStatus], look: &Look) {
    let mut columns: Vec<(Column, Vec<Cell>)> =
        Column::ALL.iter().map(|column| (*column, cells(*column, lanes, look))).collect();
    let mut widths: Vec<usize> = columns.iter().map(|(_, cells)| widest(cells)).collect();
    if let Some(width) = look.width {
        fit(&mut columns, &mut widths, width);
    }
    for row in 0..=lanes.len() {
        let mut line = String::new();
        for ((column, cells), width) in columns.iter().zip(&widths) {
            let is_last = *column == Column::Fault;
            line.push_str(&placed(&cells[row], *width, column.is_figure(), is_last, look.has_colour));
            if !is_last {
                line.push_str(&" ".repeat(GAP));
            }
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
}

fn cells(column: Column, lanes: &[&LaneStatus], look: &Look) -> Vec<Cell> {
    let head = std::iter::once(Cell::new(column.head(), Ink::Dim));
    head.chain(lanes.iter().map(|lane| column.cell(lane, look.now_ms))).collect()
}

fn widest(cells: &[Cell]) -> usize {
    cells.iter().map(Cell::chars).max().unwrap_or_default()
}

/// Makes the columns fit: long names of spaces give way first, then columns that say least, then the fault's text.
fn fit(columns: &mut Vec<(Column, Vec<Cell>)>, widths: &mut Vec<usize>, width: usize) {
    let left = |widths: &[usize]| width.saturating_sub(widths[..widths.len() - 1].iter().map(|w| w + GAP).sum());
    let wanted = |widths: &[usize]| widths.last().copied().unwrap_or_default().min(FAULT_LEAST);
    let missing = wanted(widths).saturating_sub(left(widths));
    widths[0] = widths[0].saturating_sub(missing).max(SPACE_LEAST.min(widths[0]));
    for column in Column::GIVING_WAY {
        if left(widths) >= wanted(widths) {
            break;
        }
        if let Some(at) = columns.iter().position(|(here, _)| *here == column) {
            columns.remove(at);
            widths.remove(at);
        }
    }
    let left = left(widths);
    if let Some(last) = widths.last_mut() {
        *last = left.min(*last);
    }
}

fn placed(cell: &Cell, width: usize, is_figure: bool, is_last: bool, has_colour: bool) -> String {
    let text = shortened(&cell.text, width);
    let padding = if is_last { 0 } else { width.saturating_sub(text.chars().count()) };
    let padding = " ".repeat(padding);
    let text = paint(&text, cell.ink, has_colour);
    if is_figure { format!("{padding}{text}") } else { format!("{text}{padding}") }
}

fn paint(text: &str, ink: Ink, has_colour: bool) -> String {
    if has_colour && ink != Ink::Plain && !text.is_empty() {
        format!("{}{text}\u{1b}[0m", ink.code())
    } else {
        text.to_owned()
    }
}

fn shorten(text: &str, width: Option<usize>) -> String {
    width.map_or_else(|| text.to_owned(), |width| shortened(text, width))
}

fn age(since_ms: u64, now_ms: u64) -> Duration {
    Duration::from_millis(now_ms.saturating_sub(since_ms))
}

fn state(lane: &LaneStatus) -> Cell {
    let ink = match lane.state {
        LaneState::Serving => Ink::Green,
        LaneState::Standby => Ink::Cyan,
        LaneState::Parked => Ink::Red,
        LaneState::Waiting | LaneState::Opening | LaneState::Closing => Ink::Yellow,
    };
    Cell::new(lane.state.as_str(), ink)
}

/// Everything between taken and settled.
fn in_hand(backlog: &BacklogStatus) -> f64 {
    [backlog.posts_in_hand, backlog.entries_in_hand, backlog.waiting_copies].iter().map(|number| *number as f64).sum()
}

fn expiry(at_s: Option<u64>, now_ms: u64) -> Cell {
    let Some(at_s) = at_s else { return Cell::none() };
    let at_ms = at_s.saturating_mul(1000);
    if at_ms <= now_ms {
        return Cell::new(format!("{} ago", span(age(at_ms, now_ms))), Ink::Red);
    }
    let left = age(now_ms, at_ms);
    let ink = match left {
        left if left <= EXPIRY_NOW => Ink::Red,
        left if left <= EXPIRY_SOON => Ink::Yellow,
        _ => Ink::Plain,
    };
    Cell::new(format!("in {}", span(left)), ink)
}

/// The last fault; one that is over, because the lane serves, only for the record. Without one, why the lane does not
/// serve.
fn fault(lane: &LaneStatus, now_ms: u64) -> Cell {
    let is_well = matches!(lane.state, LaneState::Serving | LaneState::Standby);
    match &lane.last_fault {
        Some(FaultStatus { code, text, at_ms }) if is_well => {
            Cell::new(safe(&format!("{code} {} ago: {}", span(age(*at_ms, now_ms)), bare(text, lane, code))), Ink::Dim)
        }
        Some(FaultStatus { code, text, .. }) => {
            Cell::new(safe(&format!("{code} {}", bare(text, lane, code))), Ink::Red)
        }
        None if lane.state == LaneState::Serving => Cell::plain(""),
        None if lane.drained => Cell::new(safe(&format!("drained: {}", lane.reason)), Ink::Dim),
        None => Cell::new(safe(&lane.reason), Ink::Dim),
    }
}

/// The fault's line without the space and the code, which stand beside it.
pub(super) fn bare<'a>(text: &'a str, lane: &LaneStatus, code: &str) -> &'a str {
    let text = text.strip_prefix(&format!("space `{}`: ", lane.space)).unwrap_or(text);
    text.strip_suffix(&format!(" [{code}]")).unwrap_or(text)
}
