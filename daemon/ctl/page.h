/* What is the same in every page of mux-ctl trace report: page.css and page.js, embedded by the
 * build. */
#ifndef GM_DAEMON_CTL_PAGE_H
#define GM_DAEMON_CTL_PAGE_H

extern const char gm_page_css[], gm_page_js[];

#endif
