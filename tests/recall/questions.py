"""Natural questions on the two real homes, and the title of the session that answers each."""

from __future__ import annotations

TREES = "Found why GET /v2/trees timed out at page_size=500 and put the exact count behind a flag"
BACKUP = "nightly backup"
FLASH = "Flashing the test board was blocked: no serial device"
ROOMS = "Prüfung der Raumliste: doppelte Nummern 2.14 und 3.07 gefunden"
DEPLOY = "Masked the token in the deploy log"
RATE = "Rate limit of 60 per minute and key"
RENAME = "Renamed the command, old name kept as an alias"
ESCAPE = "Escaping of feed titles: escape once, at render time"
PALETTE = "Switched charts to a colour-blind safe palette"
PACKING = "packing list"
ISSUES = "Six open issues: three fixed, one not reproducible, one blocked on hardware, one left to the user"
GUID = "Feed parser kept items without guid: stable id from link and title"
CONTROL = "Parser survives control characters in titles"

# What tells the session: a piece of its texts, without regard to case.
QUESTIONS = (
    ("why did listing trees time out", TREES),
    ("how do we deploy the orchard api", DEPLOY),
    ("how often do we back up the database", BACKUP),
    ("for how long are backups kept", BACKUP),
    ("what should I check before flashing the board", FLASH),
    ("in welcher Sprache schreibe ich Commit-Texte", ROOMS),
    ("what encoding has räume.csv", ROOMS),
    ("what is the rate limit of the API", RATE),
    ("what happens when a client goes over the rate limit", RATE),
    ("how do I rename a command without breaking users", RENAME),
    ("how should feed titles be escaped", ESCAPE),
    ("which colours should the charts use", PALETTE),
    ("are red and green fine together in a plot", PALETTE),
    ("what goes on the packing list", PACKING),
    ("is the camping stove coming along", PACKING),
    ("why did the watchdog reset", ISSUES),
    ("may I change a default setting", ISSUES),
    ("how are feed items without a guid identified", GUID),
    ("what happens to control characters in titles", CONTROL),
    ("how do we keep tokens out of the logs", DEPLOY),
    ("who relies on the exact count of trees", TREES),
)
