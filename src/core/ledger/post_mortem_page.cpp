// SPDX-License-Identifier: BSD-3-Clause
#include "core/ledger/post_mortem_page.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "core/events/category.h"
#include "core/util/byte_text.h"

namespace tidegauge {
namespace {

constexpr size_t kColumns = 80;
constexpr size_t kRows = 8;  // rows per table

/// How to reduce the memory of a category; empty if only another model would reduce it.
std::string_view advice_for(Category category) { return row_of(category).advice; }

struct Sum {
  int64_t storage_count = 0;
  int64_t size_bytes = 0;
};
using Row = std::pair<std::string, Sum>;

/// Sums the groups by `key`, largest sum first. Skips groups whose key is empty.
template <typename Key>
std::vector<Row> sum_by(const std::vector<const LiveGroup*>& groups, Key key) {
  std::map<std::string, Sum> sums;
  for (const LiveGroup* group : groups) {
    const std::string name = key(*group);
    if (name.empty()) continue;
    Sum& sum = sums[name];
    sum.storage_count += group->storage_count;
    sum.size_bytes += group->size_bytes;
  }
  std::vector<Row> rows(sums.begin(), sums.end());
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return a.second.size_bytes > b.second.size_bytes;
  });
  return rows;
}

/// Cuts the beginning of a long name, because its end says more.
std::string shorten(const std::string& text, size_t columns) {
  if (text.size() <= columns) return text;
  return "..." + text.substr(text.size() - columns + 3);
}

std::string pad_left(const std::string& text, size_t columns) {
  return std::string(columns - std::min(columns, text.size()), ' ') + text;
}

class Report {
 public:
  void line(const std::string& text) { text_ += text.substr(0, kColumns) + "\n"; }

  void table(const std::string& title, const std::vector<Row>& rows, int64_t total_bytes) {
    if (rows.empty()) return;
    line("");
    line("  " + title);
    for (size_t i = 0; i < std::min(rows.size(), kRows); ++i) {
      row(rows[i].first, rows[i].second, total_bytes);
    }
    if (rows.size() <= kRows) return;
    Sum rest;
    for (size_t i = kRows; i < rows.size(); ++i) {
      rest.storage_count += rows[i].second.storage_count;
      rest.size_bytes += rows[i].second.size_bytes;
    }
    std::string name = "(";
    name.append(std::to_string(rows.size() - kRows)).append(" more)");
    row(name, rest, total_bytes);
  }

  const std::string& text() const { return text_; }

 private:
  void row(const std::string& name, const Sum& sum, int64_t total_bytes) {
    const double share = 100.0 * static_cast<double>(sum.size_bytes) /
                         static_cast<double>(std::max<int64_t>(total_bytes, 1));
    std::array<char, 32> percent{};
    std::snprintf(percent.data(), percent.size(), "%3.0f %%", share);
    const std::string count =
        sum.storage_count == 1 ? "" : std::to_string(sum.storage_count) + " x";
    std::string begin = pad_left(render_bytes(sum.size_bytes), 12) + pad_left(percent.data(), 7) +
                        pad_left(count, 9) + "  ";
    const size_t columns = kColumns - begin.size();
    line(begin + shorten(name, columns));
  }

  std::string text_;
};

std::string tensor_name(const LiveGroup& group) {
  std::string name = group.dtype.empty() ? "(no tensor observed)" : group.dtype + " " + group.shape;
  if (!group.op.empty()) name += " " + group.op;
  return name;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

std::string freeable_name(const LiveGroup& group) {
  if (advice_for(group.category).empty()) return {};
  const std::string place = !group.stack.empty() ? first_line(group.stack) : group.module;
  const std::string category(to_string(group.category));
  return place.empty() ? category : category + ": " + place;
}

/// One line per category of these groups: how to reduce its memory.
std::string render_advice(const std::vector<const LiveGroup*>& groups) {
  std::map<Category, std::string_view> by_category;
  for (const LiveGroup* group : groups) by_category[group->category] = advice_for(group->category);
  std::string text;
  for (const auto& [category, advice] : by_category) {
    if (!advice.empty())
      text.append("  ").append(to_string(category)).append(": ").append(advice) += '\n';
  }
  return text;
}

}  // namespace

std::string render_post_mortem(const PostMortem& post_mortem) {
  const FailedAllocation& failed = post_mortem.failed;
  std::vector<const LiveGroup*> groups;
  int64_t total_bytes = 0;
  int64_t elsewhere_bytes = 0;
  for (const LiveGroup& group : post_mortem.live) {
    if (!failed.device.empty() && group.device != failed.device) {
      elsewhere_bytes += group.size_bytes;
      continue;
    }
    groups.push_back(&group);
    total_bytes += group.size_bytes;
  }

  Report report;
  report.line("tidegauge: out of memory" +
              (failed.size_bytes ? " allocating " + render_bytes(*failed.size_bytes) : "") +
              (failed.device.empty() ? "" : " on " + failed.device));
  std::string where = "  requested";
  if (!post_mortem.op.empty()) where += " by " + post_mortem.op;
  if (!post_mortem.module.empty()) where += " in " + post_mortem.module;
  if (post_mortem.step > 0) where += ", in step " + std::to_string(post_mortem.step);
  if (where.size() > 11) report.line(where);
  std::string alive = "  live memory: " + render_bytes(total_bytes);
  if (elsewhere_bytes > 0) alive += ", and " + render_bytes(elsewhere_bytes) + " on other devices";
  report.line(alive);

  report.table(
      "by category",
      sum_by(groups, [](const LiveGroup& group) { return std::string(to_string(group.category)); }),
      total_bytes);
  report.table("by allocating module",
               sum_by(groups,
                      [](const LiveGroup& group) {
                        return group.module.empty() ? "(no module)" : group.module;
                      }),
               total_bytes);
  report.table("by tensor", sum_by(groups, &tensor_name), total_bytes);
  report.table("largest that could be freed", sum_by(groups, &freeable_name), total_bytes);
  return report.text() + render_advice(groups);
}

}  // namespace tidegauge
